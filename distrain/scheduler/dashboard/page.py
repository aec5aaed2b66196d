"""The Bokeh document of the Training page."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from bokeh.document import Document as BokehDocument
from bokeh.layouts import column, row
from bokeh.models import Div, RadioButtonGroup, Select
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from jinja2 import BaseLoader, ChoiceLoader, DictLoader, Environment, Template

from distrain.scheduler.dashboard import bars, curves, tables
from distrain.scheduler.dashboard.job_text import (
    FOLLOW,
    NEWEST,
    NOTHING,
    headline,
    job_options,
    spec_html,
)
from distrain.scheduler.dashboard.panel import Panel
from distrain.scheduler.dashboard.watching import DOCUMENTS, View, Watch
from distrain.scheduler.monitor import Monitor

_UNUSED = re.compile(r"\s*<script[^>]*/bokeh-(?:mathjax|gl)[^>]*></script>")
"""Bokeh's scripts for formulas and WebGL, which the pages do not use.

They would be half of the bytes that a page loads.
"""

# Styles do not affect Bokeh's canvases, so a filter inverts the lightness of the whole page and
# keeps its hues, as for the report's pictures.
_DARK = """<style>@media (prefers-color-scheme: dark) {
html { background: #fff; filter: invert(0.91) hue-rotate(180deg); } }</style>
</head>"""


LOOK_EVERY_MS = 1_000
PANELS: tuple[Callable[[], Panel], ...] = (
    tables.jobs,
    curves.rows_per_second,
    bars.time_by_phase,
    curves.loss,
    curves.auc,
    curves.learning_rate,
    bars.step_time,
    tables.timeline,
    bars.gpu,
    bars.memory,
)
_TEXT: dict[str, Any] = {"sizing_mode": "stretch_width", "disable_math": True}
_CHOICE: dict[str, Any] = {"sizing_mode": "stretch_width", "min_width": 200, "max_width": 420}
_WRAPPED = {"flex-wrap": "wrap"}
_X_AXES = ("rows_total", "elapsed_s")
_WINDOWS = ("total_seconds", "seconds")


class TrainingPage:
    """The Training page as one visitor sees it, with the visitor's choices.

    Args:
        watch: Follows the job that is shown.
        address: The scheduler's address.
        other: Follows the job to compare with.
    """

    def __init__(self, watch: Watch, address: str, other: Watch | None = None):
        self._watch = watch
        self._other = other or Watch(watch.documents)
        self._address = address
        self._panels = [make() for make in PANELS]
        by_name = {panel.name: panel for panel in self._panels}
        self._headline = Div(text="", name="headline", **_TEXT)
        self._spec = Div(text="", name="spec", **_TEXT)
        self._spec_of: tuple[str, str] | None = None
        self._select = Select(title="Job", options=job_options([]), name="job", **_CHOICE)
        self._select.value = watch.wanted
        self._with = Select(title="Compare with", options=[], name="with", **_CHOICE)
        self._with.value = self._other.wanted
        self._axis = RadioButtonGroup(labels=["over rows", "over time"], active=0, name="x")
        self._window = RadioButtonGroup(
            labels=["this attempt", "last report"], active=0, name="window"
        )
        self._table = by_name["jobs"].root.source
        self._select.on_change("value", self._selected)
        self._with.on_change("value", self._other_selected)
        self._axis.on_change("active", self._axis_chosen)
        self._window.on_change("active", self._window_chosen)
        self._table.selected.on_change("indices", self._row_clicked)
        self.root = self._lay_out(by_name)

    def refresh(self) -> None:
        """Update the page to the present state of the jobs; called every second."""
        view = self._watch.refresh()
        if self._other.wanted != NEWEST:
            view = replace(view, other=self._other.refresh())
        self._show(view)

    def _show(self, view: View) -> None:
        for select, first in ((self._select, FOLLOW), (self._with, NOTHING)):
            options = job_options(view.jobs, first)
            if select.value not in [value for value, _ in options]:
                options.append((select.value, f"{select.value} (not known here)"))
            if select.options != options:
                select.options = options
        other = view.other.job if view.other else None
        text = headline(view.job, self._address, view.missing, other)
        if self._headline.text != text:
            self._headline.text = text
        self._show_spec(view)
        self._showing = True  # changes of the table's selection are not clicks now
        try:
            for panel in self._panels:
                panel.show(view)
        finally:
            self._showing = False

    def _show_spec(self, view: View) -> None:
        job = view.job
        submission = (str(job["id"]), str(job["created_at"])) if job else None
        if submission != self._spec_of:  # a spec never changes, and new text would close the panel
            self._spec_of, self._spec.text = submission, spec_html(job)

    def _follow(self, job_id: str) -> None:
        if job_id != self._watch.wanted:
            self._watch.wanted = job_id
            self._select.value = job_id
            self.refresh()

    def _selected(self, _name: str, _old: str, new: str) -> None:
        self._follow(new)

    def _other_selected(self, _name: str, _old: str, new: str) -> None:
        self._other.wanted = new
        self.refresh()

    def _row_clicked(self, _name: str, _old: list[int], new: list[int]) -> None:
        if new and not self._showing:
            self._follow(self._table.data["job_id"][new[0]])

    def _axis_chosen(self, _name: str, _old: int, new: int) -> None:
        for panel in self._panels:
            if panel.set_x is not None:
                panel.set_x(_X_AXES[new])

    def _window_chosen(self, _name: str, _old: int, new: int) -> None:
        for panel in self._panels:
            if panel.set_window is not None:
                panel.set_window(_WINDOWS[new])

    def _lay_out(self, by_name: dict[str, Panel]) -> Any:
        def beside(*names: str) -> Any:
            figures = [by_name[name].root for name in names]
            return row(figures, sizing_mode="stretch_width", styles=_WRAPPED)

        choices = row(
            self._select,
            self._with,
            column(Div(text="Loss, AUC, learning rate"), self._axis),
            column(Div(text="Where the time goes"), self._window),
            sizing_mode="stretch_width",
            styles=_WRAPPED,
        )
        return column(
            choices,
            self._headline,
            by_name["jobs"].root,
            beside("rows-per-second", "time-by-phase"),
            beside("loss", "auc", "learning-rate"),
            beside("step-time", "memory", "gpu"),
            by_name["timeline"].root,
            self._spec,
            sizing_mode="stretch_width",
        )


def training_doc(scheduler: Any, extra: dict[str, Any], doc: BokehDocument) -> None:
    """Fill a Bokeh document with the Training page of a scheduler.

    The URL's `?job=` and `?with=` are the ids of the jobs to show and to compare with.
    """
    documents = _documents_of(scheduler)
    watch, other = (Watch(documents, _asked_for(doc, name)) for name in ("job", "with"))
    page = TrainingPage(watch, scheduler.address, other)
    page.refresh()
    doc.add_root(page.root)
    doc.add_periodic_callback(page.refresh, LOOK_EVERY_MS)
    doc.title = "Dask: Training"
    doc.theme = BOKEH_THEME
    doc.template = _light_template(env)
    doc.template_variables.update(extra)


def _asked_for(doc: BokehDocument, name: str) -> str:
    context = doc.session_context
    values = context.request.arguments.get(name, []) if context and context.request else []
    return values[0].decode(errors="replace") if values else NEWEST


def _documents_of(scheduler: Any) -> Callable[[], Monitor | None]:
    """Return a function that returns a scheduler's monitor, or `None` if it has none yet."""
    return lambda: scheduler.extensions.get(DOCUMENTS)


@cache
def _light_template(dask: Environment) -> Template:
    """Return Dask's page template `simple.html` with changes; `dask` is Dask's environment.

    The page declares its language, has a dark mode, can be zoomed, and loads no unused scripts.
    """
    loader = dask.loader
    assert isinstance(loader, BaseLoader)
    base, _, _ = loader.get_source(dask, "base.html")
    base = base.replace("<html>", '<html lang="en">')
    base = base.replace("</head>", _DARK)
    base = base.replace(", maximum-scale=1.0, user-scalable=no", "")
    base = base.replace("{{ bokeh_js |", "{{ bokeh_js | without_unused |")
    ours = dask.overlay(loader=ChoiceLoader([DictLoader({"base.html": base}), loader]))
    ours.filters = {**dask.filters, "without_unused": lambda scripts: _UNUSED.sub("", str(scripts))}
    return ours.get_template("simple.html")
