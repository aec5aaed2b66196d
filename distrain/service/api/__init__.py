"""The HTTP API v1: routes, documents, errors, streams."""

__all__: list[str] = []
