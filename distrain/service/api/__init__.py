"""The HTTP API v1: routes, documents, errors, streams."""

from distrain.service.api.app import make_app

__all__ = ["make_app"]
