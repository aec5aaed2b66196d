"""Attaches the monitor to a scheduler: with the preload before it starts, or while it runs.

Dask builds its routes and its dashboard when a scheduler starts. To one that runs already, a client
that has installed the coordinator adds them by a plugin.
"""

import logging
from typing import Any

import dask
from distributed import Client, Scheduler, SchedulerPlugin
from distributed.http.utils import get_handlers

from distrain.certificates import ends_s
from distrain.errors import ClusterError
from distrain.monitor.access import guard_running, install_access
from distrain.monitor.observer import EXTENSION, Monitor
from distrain.monitor.pages import add_pages, install_pages
from distrain.monitor.prometheus import export
from distrain.scheduler import PLUGIN_NAME, CoordinatorPlugin

_ROUTES_KEY = "distributed.scheduler.http.routes"
_ROUTES = "distrain.monitor.http"
"""The module whose routes Dask takes."""
_HEALTH = "health$"

log = logging.getLogger("distrain.monitor")


def install() -> None:
    """Prepare this process: schedulers that start later serve the jobs' pages and documents.

    To be called before a scheduler is made, since Dask builds its routes and its dashboard then.
    Calling it again changes nothing.

    Raises:
        ClusterError: The environment asks for a token that cannot be used.
    """
    install_access()
    install_pages()
    add_routes(_ROUTES)


def add_routes(module: str) -> None:
    """Have schedulers that start later serve a module's `routes`; again: no effect."""
    routes = dask.config.get(_ROUTES_KEY)
    if module not in routes:
        routes.append(module)


def watch(scheduler: Scheduler) -> Monitor:
    """Begin to watch a scheduler's coordinator; again: the monitor that watches it already."""
    coordinator: CoordinatorPlugin = scheduler.plugins[PLUGIN_NAME]
    monitor: Monitor | None = scheduler.extensions.get(EXTENSION)
    if monitor is None:
        monitor = Monitor(coordinator)
        coordinator.observers = (*coordinator.observers, monitor)
        scheduler.extensions[EXTENSION] = monitor
    export(monitor, _certificate_ends_s(scheduler))
    return monitor


def _certificate_ends_s(scheduler: Scheduler) -> dict[str, float]:
    """When the certificates end that a scheduler began with; files are not read again."""
    security, http = scheduler.security, "distributed.scheduler.dashboard.tls"
    named = {
        "comm": getattr(security, "tls_scheduler_cert", None),
        "comm.ca_file": getattr(security, "tls_ca_file", None),
        "http": dask.config.get(f"{http}.cert", None),
    }
    ends = {name: ends_s(found) for name, found in named.items() if found}
    return {name: end_s for name, end_s in ends.items() if end_s is not None}


class MonitorPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Shows the jobs of a scheduler that was started without the preload."""

    name = EXTENSION
    idempotent = True

    def start(self, scheduler: Scheduler) -> None:
        """Add documents, metrics and pages, unless they are there.

        Nothing here awaits, so that of two clients that come at once the second finds all of it.
        """
        if EXTENSION in scheduler.extensions:
            return
        if PLUGIN_NAME not in scheduler.plugins:
            raise ClusterError("the scheduler has no coordinator whose jobs could be shown")
        application = scheduler.http_application
        guard_running(application)  # first: from here on there is something to guard
        prefix = _prefix_of(application)
        watch(scheduler)
        application.add_handlers(".*$", get_handlers(scheduler, [_ROUTES], prefix))
        if not add_pages(scheduler, prefix):
            log.info("the scheduler has no dashboard for the page of its jobs")


def ensure_monitor(client: Client) -> None:
    """Make sure that the client's scheduler, which has a coordinator, shows its jobs.

    Raises:
        ClusterError: It cannot; its jobs run all the same.
    """
    try:
        client.register_plugin(MonitorPlugin())
    except Exception as error:  # whatever another version of distrain, or of Dask, makes of it
        reason = error.message if isinstance(error, ClusterError) else repr(error)
        raise ClusterError(
            f"the scheduler cannot show its jobs: {reason}",
            hint="Start it with `dask scheduler --preload distrain.preload`, and with the version "
            "of distrain that is used here.",
        ) from error


def _prefix_of(application: Any) -> str:
    """What precedes the paths that a scheduler's HTTP application serves: `/`, or `/PREFIX/`.

    Dask does not keep the prefix, so it is read off the route of `/health`.
    """
    for rule in application.wildcard_router.rules:
        pattern: str = rule.matcher.regex.pattern
        if pattern.endswith(f"/{_HEALTH}"):
            return pattern.removesuffix(_HEALTH)
    return "/"
