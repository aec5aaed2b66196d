"""Commands of whoever operates the job service."""

__all__: list[str] = []
