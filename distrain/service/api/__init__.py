"""The HTTP API v1: routes, documents, errors, streams."""
