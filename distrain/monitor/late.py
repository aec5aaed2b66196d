"""The monitor for a scheduler that runs already, which was started without the preload.

A client that has installed the coordinator registers this plugin right after it. Dask builds its
routes and its dashboard when a scheduler starts; here they are added to what it serves.
"""

import logging
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin
from distributed.http.utils import get_handlers

from distrain.coordinator.plugin import PLUGIN_NAME
from distrain.errors import ClusterError
from distrain.monitor.access import guard_running
from distrain.monitor.install import ROUTES, watch
from distrain.monitor.observer import EXTENSION
from distrain.monitor.pages import add_pages

_HEALTH = "health$"

log = logging.getLogger("distrain.monitor")


class MonitorPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Shows the jobs of a scheduler that was started without the preload."""

    name = EXTENSION
    idempotent = True

    def start(self, scheduler: Scheduler) -> None:
        """Add documents, figures and pages; nothing, where they are already.

        It waits for nothing, so that of two clients that come at once the second finds all of it.

        Raises:
            ClusterError: There is no coordinator to watch, or the scheduler's environment asks for
                a token that cannot be used.
        """
        if EXTENSION in scheduler.extensions:
            return
        if PLUGIN_NAME not in scheduler.plugins:
            raise ClusterError("the scheduler has no coordinator whose jobs could be shown")
        application = scheduler.http_application
        guard_running(application)  # first: from here on there is something to guard
        prefix = prefix_of(application)
        watch(scheduler)
        application.add_handlers(".*$", get_handlers(scheduler, [ROUTES], prefix))
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
        told = error.message if isinstance(error, ClusterError) else repr(error)
        raise ClusterError(
            f"the scheduler cannot show its jobs: {told}",
            hint="Start it with `dask scheduler --preload distrain.preload`, and with the version "
            "of distrain that is used here.",
        ) from error


def prefix_of(application: Any) -> str:
    """What precedes the paths that a scheduler's HTTP application serves: `/`, or `/PREFIX/`.

    Dask does not keep what it was told, so it is read off the route of its `/health`.
    """
    for rule in application.wildcard_router.rules:
        pattern: str = rule.matcher.regex.pattern
        if pattern.endswith(f"/{_HEALTH}"):
            return pattern.removesuffix(_HEALTH)
    return "/"
