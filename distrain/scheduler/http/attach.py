"""Adds the HTTP routes to a scheduler before it starts (by the preload), or while it runs.

Dask creates a scheduler's routes when the scheduler starts. In a scheduler that already runs, a
client installs the coordinator, and then a plugin that adds the routes; these routes refuse orders
(see `access`).
"""

import logging
from typing import Any

import dask
from distributed import Client, Scheduler, SchedulerPlugin

from distrain.errors import ClusterError
from distrain.scheduler.dashboard.dask_dashboard import add_dashboard_on_request, add_pages
from distrain.scheduler.dashboard.watching import DOCUMENTS
from distrain.scheduler.http.access import guard_running, install_access
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.http.handler import routes
from distrain.scheduler.http.prometheus import export
from distrain.scheduler.http.routes import answer_over_comm
from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.workers.certificates import ends_s
from distrain.workers.local import ON_REQUEST

_ROUTES_KEY = "distributed.scheduler.http.routes"
_HANDLER = "distrain.scheduler.http.handler"
_HEALTH = "health$"

OVER_COMM = "distrain_request"
"""The name of the Dask RPC that answers requests like the HTTP routes."""

log = logging.getLogger("distrain.scheduler.http")


def install() -> None:
    """Make schedulers that start later in this process serve the HTTP routes.

    They also accept requests that change jobs.

    Raises:
        ClusterError: The environment's token cannot be used.
    """
    install_access()
    modules = dask.config.get(_ROUTES_KEY)
    modules.extend([] if _HANDLER in modules else [_HANDLER])


class JobsPlugin(CoordinatorPlugin):
    """The coordinator, with an API that clients can call over Dask's connections."""

    def add_api(self, scheduler: Scheduler) -> None:
        api = CoordinatorApi(self)
        scheduler.extensions[EXTENSION] = api

        def answer_request(method: str, path: str, query: str, content: bytes) -> dict[str, Any]:
            return answer_over_comm(api, method, path, query, content)

        scheduler.handlers[OVER_COMM] = answer_request


def show_pages(scheduler: Scheduler) -> None:
    """Add the pages about jobs to a scheduler's dashboard; if there is none, log that.

    If the key `ON_REQUEST` is set in Dask's configuration, the scheduler has no dashboard yet.
    Then add one with these pages, which is loaded at its first request.
    """
    application = scheduler.http_application
    prefix = _prefix_of(application)
    if dask.config.get(ON_REQUEST, False):
        add_dashboard_on_request(scheduler, prefix)
    elif not add_pages(scheduler, prefix):
        log.info("the scheduler has no dashboard for the page of its jobs")


def show_jobs(scheduler: Scheduler) -> None:
    """Give the dashboard's pages access to a scheduler's jobs, and export them to Prometheus."""
    api: CoordinatorApi = scheduler.extensions[EXTENSION]
    scheduler.extensions[DOCUMENTS] = api.monitor
    export(api.monitor, _certificate_ends_s(scheduler))


def _certificate_ends_s(scheduler: Scheduler) -> dict[str, float]:
    """Return when a scheduler's certificates expire, as unix times by the certificates' names.

    Missing and unreadable certificates are left out. The result stays true while the scheduler
    runs, since it keeps the certificates with which it was started.
    """
    security, http = scheduler.security, "distributed.scheduler.dashboard.tls"
    files = {
        "comm": getattr(security, "tls_scheduler_cert", None),
        "comm.ca_file": getattr(security, "tls_ca_file", None),
        "http": dask.config.get(f"{http}.cert", None),
    }
    ends = {name: ends_s(file) for name, file in files.items() if file}
    return {name: end_s for name, end_s in ends.items() if end_s is not None}


class HttpRoutesPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Adds the HTTP routes to a running scheduler that was started without the preload."""

    name = "distrain-http"
    idempotent = True

    def start(self, scheduler: Scheduler) -> None:
        """Add HTTP routes, Prometheus metrics and dashboard pages, unless the scheduler has them.

        Raises `ClusterError` if the scheduler has no coordinator.
        """
        # Nothing here awaits, so of two clients that come at once the second finds all of it.
        if DOCUMENTS in scheduler.extensions:
            return
        if EXTENSION not in scheduler.extensions:
            raise ClusterError("the scheduler has no coordinator whose jobs could be shown")
        application = scheduler.http_application
        guard_running(application)  # before there is anything to guard
        prefix = _prefix_of(application)
        show_jobs(scheduler)
        options = {"dask_server": scheduler, "accepts_commands": False}
        handlers = [(f"{prefix.rstrip('/')}{path}", kind, options) for path, kind, _ in routes]
        application.add_handlers(".*$", handlers)
        show_pages(scheduler)


def ensure_coordinator(client: Client) -> None:
    """Install a coordinator in the client's scheduler, unless it has one."""
    client.register_plugin(JobsPlugin(), name=PLUGIN_NAME)


def ensure_http_routes(client: Client) -> None:
    """Add HTTP routes, metrics and pages to the client's scheduler, unless it has them.

    Raises `ClusterError` if the scheduler has no coordinator, or if adding them fails.
    """
    try:
        client.register_plugin(HttpRoutesPlugin())
    except Exception as error:  # another version of distrain or Dask may raise any error
        reason = error.message if isinstance(error, ClusterError) else repr(error)
        raise ClusterError(
            f"the scheduler cannot show its jobs: {reason}",
            hint="Start it with `dask scheduler --preload distrain.preload`, and with the version "
            "of distrain that is used here.",
        ) from error


def _prefix_of(application: Any) -> str:
    """Return the prefix of an application's paths, `/` or `/PREFIX/`, from its route `/health`."""
    for rule in application.wildcard_router.rules:
        pattern: str = rule.matcher.regex.pattern
        if pattern.endswith(f"/{_HEALTH}"):
            return pattern.removesuffix(_HEALTH)
    return "/"
