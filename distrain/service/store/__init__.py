"""The service's database: jobs, tokens, leases and events, in short transactions."""

__all__: list[str] = []
