"""Adds the HTTP routes to a scheduler before it starts (by the preload), or while it runs.

Dask creates a scheduler's routes when the scheduler starts. In a scheduler that already runs, a
client installs the coordinator, which then adds the routes; these routes refuse orders (see
`access`).
"""

import logging
from typing import Any

import dask
from distributed import Client, Scheduler

from distrain.scheduler.dashboard.dask_dashboard import add_dashboard_on_request, add_pages
from distrain.scheduler.dashboard.watching import DOCUMENTS
from distrain.scheduler.http.access import guard_running, install_access
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.http.handler import Handler, routes
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
    """The coordinator, with an API for clients: over Dask's connections, and HTTP routes and pages.

    If routes or pages cannot be added, the error is logged: training works without them.
    """

    def add_api(self, scheduler: Scheduler) -> None:
        api = CoordinatorApi(self)
        scheduler.extensions[EXTENSION] = api

        def answer_request(method: str, path: str, query: str, content: bytes) -> dict[str, Any]:
            return answer_over_comm(api, method, path, query, content)

        scheduler.handlers[OVER_COMM] = answer_request
        try:
            if not _has_routes(scheduler):  # started without the preload
                _add_routes(scheduler)
            scheduler.extensions[DOCUMENTS] = api.monitor  # for the dashboard's pages
            export(api.monitor, _certificate_ends_s(scheduler))  # to Prometheus
            _show_pages(scheduler)
        except Exception:
            log.exception("the scheduler cannot show its jobs")


def _has_routes(scheduler: Scheduler) -> bool:
    """Return True if a scheduler was started with the HTTP routes.

    Dask's configuration does not tell, because `install` may have changed it later.
    """
    rules = scheduler.http_application.wildcard_router.rules
    return any(getattr(rule, "target", None) is Handler for rule in rules)


def _add_routes(scheduler: Scheduler) -> None:
    """Add the HTTP routes to a running scheduler."""
    application = scheduler.http_application
    guard_running(application)  # before there is anything to guard
    prefix = _prefix_of(application).rstrip("/")
    options = {"dask_server": scheduler, "accepts_commands": False}
    handlers = [(f"{prefix}{path}", kind, options) for path, kind, _ in routes]
    application.add_handlers(".*$", handlers)


def _show_pages(scheduler: Scheduler) -> None:
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


def ensure_coordinator(client: Client) -> None:
    """Install a coordinator with routes and pages in the client's scheduler, unless it has one."""
    client.register_plugin(JobsPlugin(), name=PLUGIN_NAME)


def _prefix_of(application: Any) -> str:
    """Return the prefix of an application's paths, `/` or `/PREFIX/`, from its route `/health`."""
    for rule in application.wildcard_router.rules:
        pattern: str = rule.matcher.regex.pattern
        if pattern.endswith(f"/{_HEALTH}"):
            return pattern.removesuffix(_HEALTH)
    return "/"
