"""Who may do what: tokens, roles, quotas of requests."""

__all__: list[str] = []
