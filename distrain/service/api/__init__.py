"""The HTTP API v1: routes, JSON documents, errors and streams."""
