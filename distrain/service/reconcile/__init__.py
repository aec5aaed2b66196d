"""The loop that brings clusters to what the database says, under leases."""

__all__: list[str] = []
