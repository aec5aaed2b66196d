"""The rights of callers: tokens, roles, rates of requests."""
