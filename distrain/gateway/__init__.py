"""Takes jobs over a scheduler's HTTP: put, cancel, changes since a revision."""

from distrain.gateway.attach import install, open_gateway

__all__ = [
    "install",
    "open_gateway",
]
