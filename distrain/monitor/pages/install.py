"""Puts the pages among those of Dask's dashboard; Dask has no official way, so all of it is here.

The dashboard is built from `distributed.dashboard.scheduler.applications` (URL to function) and
`template_variables` (the navigation bar) when a scheduler starts. Both are changed before, at the
import of a preload module.
"""

from typing import Any

PAGE_URL = "/distrain"
NAVIGATION_URL = "/training"
"""The same page: Dask's navigation bar shows the URL's last word as the entry's name."""
INDIVIDUAL_PREFIX = "/individual-distrain-"


def install_pages() -> bool:
    """Register the pages for all schedulers that start later in this process; again: no effect.

    Returns:
        Whether there is a dashboard to put them into: Dask wants a version of Bokeh.
    """
    try:
        from distributed.dashboard import scheduler as dashboard
    except ImportError:
        return False
    if PAGE_URL in dashboard.applications:
        return True
    from distrain.monitor.pages.page import PANELS, individual_doc, training_doc

    dashboard.applications[PAGE_URL] = training_doc
    dashboard.applications[NAVIGATION_URL] = training_doc
    for make in PANELS:
        name = make.__name__.replace("_", "-")
        dashboard.applications[INDIVIDUAL_PREFIX + name] = individual_doc(make)
    dashboard.template_variables = _with_entry(dashboard.template_variables)
    return True


def _with_entry(template_variables: Any) -> Any:
    def wrapped(scheduler: Any) -> dict[str, Any]:
        variables = dict(template_variables(scheduler))
        pages = list(variables["pages"])
        at = pages.index("status") + 1 if "status" in pages else 0
        variables["pages"] = [*pages[:at], NAVIGATION_URL.strip("/"), *pages[at:]]
        return variables

    return wrapped
