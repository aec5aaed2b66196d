"""Serves a scheduler's jobs: JSON over HTTP, Prometheus metrics, pages in Dask's dashboard."""

from distrain.monitor.attach import ensure_monitor, install, watch

__all__ = [
    "ensure_monitor",
    "install",
    "watch",
]
