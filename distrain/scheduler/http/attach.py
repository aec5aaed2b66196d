"""Adds the HTTP routes to a scheduler: with the preload before it starts, or while it runs.

Dask builds its routes and its dashboard when a scheduler starts. To one that runs already, a client
that has installed the coordinator adds them by a plugin, but for the routes of orders.
"""

import logging
from typing import Any

import dask
from distributed import Client, Scheduler, SchedulerPlugin
from distributed.http.utils import get_handlers

from distrain.errors import ClusterError
from distrain.scheduler.dashboard.dask_dashboard import add_pages, install_pages
from distrain.scheduler.dashboard.watching import DOCUMENTS
from distrain.scheduler.http.access import guard_running, install_access
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.http.prometheus import export
from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.workers.certificates import ends_s

_ROUTES_KEY = "distributed.scheduler.http.routes"
_JOB_ROUTES = "distrain.scheduler.http.job_routes"
_ORDER_ROUTES = "distrain.scheduler.http.order_routes"
_HEALTH = "health$"

log = logging.getLogger("distrain.scheduler.http")


def install() -> None:
    """Have schedulers that start later in this process serve pages, documents and orders.

    `ClusterError`: the environment asks for a token that cannot be used.
    """
    install_access()
    install_pages()
    routes = dask.config.get(_ROUTES_KEY)
    routes.extend(module for module in (_JOB_ROUTES, _ORDER_ROUTES) if module not in routes)


def add_http_routes(scheduler: Scheduler) -> CoordinatorApi:
    """Return the object that a scheduler's HTTP routes use; create it once per scheduler."""
    coordinator: CoordinatorPlugin = scheduler.plugins[PLUGIN_NAME]
    api: CoordinatorApi | None = scheduler.extensions.get(EXTENSION)
    if api is None:
        api = CoordinatorApi(coordinator)
        coordinator.observers = (*coordinator.observers, api.monitor)
        coordinator.is_unseen = api.changes.is_unseen
        scheduler.extensions[EXTENSION] = api
        scheduler.extensions[DOCUMENTS] = api.monitor
        scheduler.handlers["distrain_jobs"] = api.monitor.list_jobs
    export(api.monitor, _certificate_ends_s(scheduler))
    return api


def _certificate_ends_s(scheduler: Scheduler) -> dict[str, float]:
    """When the certificates end that a scheduler began with; files are not read again."""
    security, http = scheduler.security, "distributed.scheduler.dashboard.tls"
    files = {
        "comm": getattr(security, "tls_scheduler_cert", None),
        "comm.ca_file": getattr(security, "tls_ca_file", None),
        "http": dask.config.get(f"{http}.cert", None),
    }
    ends = {name: ends_s(file) for name, file in files.items() if file}
    return {name: end_s for name, end_s in ends.items() if end_s is not None}


class HttpRoutesPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Shows the jobs of a scheduler that was started without the preload."""

    name = EXTENSION
    idempotent = True

    def start(self, scheduler: Scheduler) -> None:
        """Add documents, metrics and pages, unless they are there."""
        # Nothing here awaits: of two clients that come at once the second finds all of it.
        if EXTENSION in scheduler.extensions:
            return
        if PLUGIN_NAME not in scheduler.plugins:
            raise ClusterError("the scheduler has no coordinator whose jobs could be shown")
        application = scheduler.http_application
        guard_running(application)  # first: from here on there is something to guard
        prefix = _prefix_of(application)
        add_http_routes(scheduler)
        application.add_handlers(".*$", get_handlers(scheduler, [_JOB_ROUTES], prefix))
        if not add_pages(scheduler, prefix):
            log.info("the scheduler has no dashboard for the page of its jobs")


def ensure_http_routes(client: Client) -> None:
    """Have the client's scheduler, with a coordinator, show its jobs; else a `ClusterError`."""
    try:
        client.register_plugin(HttpRoutesPlugin())
    except Exception as error:  # whatever another version of distrain, or of Dask, makes of it
        reason = error.message if isinstance(error, ClusterError) else repr(error)
        raise ClusterError(
            f"the scheduler cannot show its jobs: {reason}",
            hint="Start it with `dask scheduler --preload distrain.preload`, and with the version "
            "of distrain that is used here.",
        ) from error


def _prefix_of(application: Any) -> str:
    """What precedes an application's paths, `/` or `/PREFIX/`, read off the route of `/health`."""
    for rule in application.wildcard_router.rules:
        pattern: str = rule.matcher.regex.pattern
        if pattern.endswith(f"/{_HEALTH}"):
            return pattern.removesuffix(_HEALTH)
    return "/"
