"""Puts the monitor into a scheduler's process, and a scheduler under its eyes."""

import dask
from distributed import Scheduler

from distrain.coordinator.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.monitor.access import install_access
from distrain.monitor.observer import EXTENSION, Monitor
from distrain.monitor.pages import install_pages
from distrain.monitor.prometheus import export

_ROUTES_KEY = "distributed.scheduler.http.routes"
ROUTES = "distrain.monitor.http"
"""The module whose routes Dask takes."""


def install() -> None:
    """Prepare this process: schedulers that start later serve the jobs' pages and documents.

    To be called before a scheduler is made, since Dask builds its routes and its dashboard then.
    Calling it again changes nothing.

    Raises:
        ClusterError: The environment asks for a token that cannot be used.
    """
    install_access()
    install_pages()
    routes = dask.config.get(_ROUTES_KEY)
    if ROUTES not in routes:
        routes.append(ROUTES)


def watch(scheduler: Scheduler) -> Monitor:
    """Begin to watch a scheduler's coordinator; again: the monitor that watches it already."""
    coordinator: CoordinatorPlugin = scheduler.plugins[PLUGIN_NAME]
    monitor: Monitor | None = scheduler.extensions.get(EXTENSION)
    if monitor is None:
        monitor = Monitor(coordinator)
        coordinator.observers = (*coordinator.observers, monitor)
        scheduler.extensions[EXTENSION] = monitor
    export(monitor)
    return monitor
