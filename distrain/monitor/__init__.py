"""Serves a scheduler's jobs: JSON over HTTP, Prometheus metrics, pages in Dask's dashboard."""

from distrain.monitor.access import is_foreign_page
from distrain.monitor.attach import add_routes, ensure_monitor, install, watch
from distrain.monitor.observer import Monitor

__all__ = [
    "Monitor",
    "add_routes",
    "ensure_monitor",
    "install",
    "is_foreign_page",
    "watch",
]
