"""Serves a scheduler's jobs: JSON over HTTP, Prometheus metrics, pages in Dask's dashboard."""

from distrain.monitor.access import is_foreign_page as is_foreign_page
from distrain.monitor.attach import (
    add_routes as add_routes,
    ensure_monitor as ensure_monitor,
    install as install,
    watch as watch,
)
from distrain.monitor.observer import Monitor as Monitor
