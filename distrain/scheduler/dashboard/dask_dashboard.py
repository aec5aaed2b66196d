"""Adds pages to Dask's dashboard. Dask has no API for this, so it uses Dask's internals.

A scheduler gets a second Bokeh application, and more entries in the variables from which Dask makes
the navigation bar of its own pages.
"""

from collections.abc import Callable
from typing import Any

from distributed import Scheduler
from distributed.http.scheduler.info import IndividualPlots
from tornado.httputil import HTTPServerRequest
from tornado.routing import AnyMatches, Router, Rule

PAGE_URL = "/distrain"
NAVIGATION_URL = "/training"
"""A second URL of the page. Dask's navigation bar uses the URL's last word as the entry's name."""
INDIVIDUAL_PREFIX = "/individual-distrain-"


class DashboardOnRequest:
    """Replaces itself by Dask's dashboard, with distrain's pages, at the first request for it.

    Importing the dashboard takes 0.8 s, and in most runs on a local cluster it is never opened. An
    object of this class is one of the applications of a scheduler's HTTP server.
    """

    def __init__(self, scheduler: Scheduler, prefix: str):
        self._scheduler = scheduler
        self._prefix = prefix

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        """Load the dashboard, and return its handler for a request.

        Called for requests that no earlier application of the server answers.
        """
        return self._loaded().find_handler(request, **options)

    def _loaded(self) -> Any:
        from distributed.dashboard import scheduler as dashboard

        application, server = self._scheduler.http_application, self._scheduler.http_server
        served = application.applications
        dashboard.connect(application, server, self._scheduler, prefix=self._prefix)
        served[served.index(self)] = served.pop()
        add_pages(self._scheduler, self._prefix)
        return next(app for app in served if hasattr(app, "app_paths"))

    def load(self) -> None:
        """Load the dashboard unless it is loaded."""
        if self in self._scheduler.http_application.applications:
            self._loaded()


class _LoadedForPlots(Router):
    """A router that answers nothing, before Dask's handler of the list of single figures.

    When that list is requested, it loads the dashboard, so that Dask's handler finds the figures.
    """

    def __init__(self, dashboard: DashboardOnRequest, prefix: str):
        self._dashboard = dashboard
        self._path = f"{prefix}individual-plots.json"

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> None:
        if request.path == self._path:
            self._dashboard.load()


def add_dashboard_on_request(scheduler: Scheduler, prefix: str) -> None:
    """Add a dashboard with distrain's pages to a scheduler; load it at the first request for it.

    `prefix` is the prefix of the server's paths, `/` or `/PREFIX/`.
    """
    application, dashboard = scheduler.http_application, DashboardOnRequest(scheduler, prefix)
    application.add_application(dashboard)
    # Dask has a handler of its own for the list, which comes before all applications.
    first = Rule(AnyMatches(), _LoadedForPlots(dashboard, prefix))
    application.default_router.rules.insert(0, first)


def add_pages(scheduler: Scheduler, prefix: str) -> bool:
    """Add distrain's pages to a scheduler's dashboard, unless it has them already.

    Returns True, or False if the scheduler has no dashboard.
    """
    served = scheduler.http_application.applications
    dashboards = [place for place, app in enumerate(served) if hasattr(app, "app_paths")]
    if not dashboards:
        return False
    if any(PAGE_URL in served[place].app_paths for place in dashboards):
        return True
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    variables = _add_entries(template_variables(scheduler))
    added = BokehApplication(_pages(), scheduler, prefix=prefix, template_variables=variables)
    added.initialize(IOLoop.current())
    # Next to Dask's own: Jupyter's application, which answers every URL, may come later.
    served.insert(dashboards[-1] + 1, added)
    added.start()
    plots = (f"{prefix}individual-plots.json", _AllPlots, {"dask_server": scheduler})
    scheduler.http_application.add_handlers(".*$", [plots])
    return True


class _AllPlots(IndividualPlots):  # type: ignore[misc]  # distributed is untyped
    """Answers with Dask's list of single figures, and distrain's figures in addition.

    Dask itself lists only the figures of its first Bokeh application.
    """

    def write(self, chunk: Any) -> None:
        if isinstance(chunk, dict):  # not a text about an error
            urls = filter(_is_individual, _pages())
            chunk |= {url.strip("/").replace("-", " ").title(): url for url in urls}
        super().write(chunk)


def _pages() -> dict[str, Callable[..., None]]:
    """Return the functions that fill the Bokeh documents of distrain's pages, by URL."""
    from distrain.scheduler.dashboard.page import PANELS, individual_doc, training_doc

    return {PAGE_URL: training_doc, NAVIGATION_URL: training_doc} | {
        INDIVIDUAL_PREFIX + make.__name__.replace("_", "-"): individual_doc(make) for make in PANELS
    }


def _is_individual(url: str) -> bool:
    return url.startswith(INDIVIDUAL_PREFIX)


def _add_entries(variables: dict[str, Any]) -> dict[str, Any]:
    """Add distrain's pages to a navigation bar's lists, in place, and return `variables`.

    `variables` are Dask's template variables, which Dask makes once per scheduler.
    """
    pages, plots = variables["pages"], variables["plots"]
    if (entry := NAVIGATION_URL.strip("/")) not in pages:
        pages.insert(pages.index("status") + 1 if "status" in pages else 0, entry)
    urls = {plot["url"] for plot in plots}
    for url in filter(_is_individual, _pages()):
        if (shown := url.strip("/")) not in urls:
            name = " ".join(shown.split("-")[1:]).title().replace("Gpu", "GPU")
            plots.append({"url": shown, "name": name})
    plots.sort(key=lambda plot: plot["name"])
    return variables
