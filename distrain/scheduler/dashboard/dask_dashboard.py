"""Adds pages to Dask's dashboard. Dask has no API for this, so it uses Dask's internals.

A scheduler gets a second Bokeh application, and an entry in the variables from which Dask makes the
navigation bar of its own pages.
"""

from typing import Any

from distributed import Scheduler
from tornado.httputil import HTTPServerRequest

PAGE_URL = "/distrain"
NAVIGATION_URL = "/training"
"""A second URL of the page. Dask's navigation bar uses the URL's last word as the entry's name."""


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
        from distributed.dashboard import scheduler as dashboard

        application, server = self._scheduler.http_application, self._scheduler.http_server
        served = application.applications
        dashboard.connect(application, server, self._scheduler, prefix=self._prefix)
        served[served.index(self)] = served.pop()
        add_pages(self._scheduler, self._prefix)
        loaded = next(app for app in served if hasattr(app, "app_paths"))
        return loaded.find_handler(request, **options)


def add_dashboard_on_request(scheduler: Scheduler, prefix: str) -> None:
    """Add a dashboard with distrain's pages to a scheduler; load it at the first request for it.

    `prefix` is the prefix of the server's paths, `/` or `/PREFIX/`.
    """
    scheduler.http_application.add_application(DashboardOnRequest(scheduler, prefix))


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

    from distrain.scheduler.dashboard.page import training_doc

    pages = {PAGE_URL: training_doc, NAVIGATION_URL: training_doc}
    variables = _add_entry(template_variables(scheduler))
    added = BokehApplication(pages, scheduler, prefix=prefix, template_variables=variables)
    added.initialize(IOLoop.current())
    # Next to Dask's own: Jupyter's application, which answers every URL, may come later.
    served.insert(dashboards[-1] + 1, added)
    added.start()
    return True


def _add_entry(variables: dict[str, Any]) -> dict[str, Any]:
    """Add the Training page to a navigation bar's list, in place, and return `variables`.

    `variables` are Dask's template variables, which Dask makes once per scheduler.
    """
    pages = variables["pages"]
    if (entry := NAVIGATION_URL.strip("/")) not in pages:
        pages.insert(pages.index("status") + 1 if "status" in pages else 0, entry)
    return variables
