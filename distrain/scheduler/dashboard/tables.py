"""The table of all jobs, and the time line of one job."""

from bokeh.models import (
    CustomJS,
    DataTable,
    DatetimeTickFormatter,
    HTMLTemplateFormatter,
    StringFormatter,
    TableColumn,
)
from bokeh.transform import factor_cmap

from distrain.jobs.figures import shown_on
from distrain.runs.report import colours
from distrain.scheduler.dashboard.figure_data import TIMELINE_KINDS, timeline_columns
from distrain.scheduler.dashboard.job_text import job_columns
from distrain.scheduler.dashboard.panel import Panel, draw, source_of, update_source
from distrain.scheduler.dashboard.watching import View

_FIGURES = shown_on("training")
# The most important columns come first, to be visible on narrow screens without scrolling.
_TITLES = {
    "name": ("name", 120),
    "state": ("state", 165),
    "progress_pct": ("progress", 95),
    "step": ("step", 110),
    "valid_auc": ("valid. AUC", 85),
    **{one.name: (one.title.lower(), max(80, 8 + 8 * len(one.title))) for one in _FIGURES},
    "auc": ("train. AUC", 85),
    "loss": ("train. loss", 85),
    "num_ranks": ("ranks", 65),
    "job_id": ("job", 240),
}

# Only computed numbers enter this template, no texts from users, so nothing is escaped.
_BAR = """<div style="background:#8884;width:100%;height:70%;margin-top:3px;position:relative">
<div style="background:#2ca02c99;width:<%= value %>%;height:100%"></div>
<span style="position:absolute;top:0;left:4px;line-height:14px"><%= value %> %</span></div>"""

# `<%-` escapes the value; the state determines the colour.
_STATE = """<span style="<%= /^failed/.test(value) ? 'color:#b3261e;font-weight:bold'
: /^cancelled/.test(value) ? 'color:#8a5a00' : /^running/.test(value) ? 'color:#1a6f1a' : '' %>">
<%- value %></span>"""
_FORMATTERS = {"progress_pct": _BAR, "state": _STATE}
_ROW_PX, _HEAD_PX = 25, 32
_MOST_ROWS = 20  # rows that a table shows before it scrolls


def jobs() -> Panel:
    source = source_of(*job_columns([]))
    columns = [
        TableColumn(
            field=field,
            title=title,
            width=width,
            sortable=False,
            formatter=HTMLTemplateFormatter(template=_FORMATTERS[field])
            if field in _FORMATTERS
            else StringFormatter(),
        )
        for field, (title, width) in _TITLES.items()
    ]
    table = DataTable(
        source=source,
        columns=columns,
        index_position=None,
        reorderable=False,
        height=_table_height(0),
        sizing_mode="stretch_width",
        # If it is narrower than its columns, it scrolls sideways instead of cutting columns.
        autosize_mode="none",
        # As Dask does for its own tables, which would otherwise cover the navigation bar's menu.
        stylesheets=[".bk-data-table {z-index: 0;}"],
    )

    # Bokeh's table is redrawn when the number of rows changes, but not when only cells change.
    draw_anew = CustomJS(args={"view": table.view}, code="view.change.emit()")
    source.js_on_change("data", draw_anew)

    def show(view: View) -> None:
        height = _table_height(len(view.jobs))
        if table.height != height:
            table.height = height
        picked = [] if view.job is None else [str(view.job["id"])]
        if update_source(source, job_columns(view.jobs)):
            source.selected.indices = []
        rows = [row for row, job_id in enumerate(source.data["job_id"]) if job_id in picked]
        if list(source.selected.indices) != rows:
            source.selected.indices = rows

    return Panel("jobs", table, show)


def _table_height(rows: int) -> int:
    return _HEAD_PX + _ROW_PX * min(max(rows, 1), _MOST_ROWS)


def timeline() -> Panel:
    source = source_of(*timeline_columns([]))
    tips = [("@kind", "@text"), ("at", "@at_ms{%F %T} UTC"), ("attempt, step", "@attempt, @step")]
    over_time = {"x_axis_type": "datetime", "x_axis_label": "time of day, UTC"}
    drawn = draw("Events", "", y_range=[*TIMELINE_KINDS], tooltips=tips, **over_time)
    drawn.hover.formatters = {"@at_ms": "datetime"}
    drawn.height = 180
    drawn.xaxis.formatter = DatetimeTickFormatter(
        milliseconds="%H:%M:%S",
        seconds="%H:%M:%S",
        minsec="%H:%M:%S",
        minutes="%H:%M",
        hourmin="%H:%M",
    )
    palette = [colours.GREY, colours.YELLOW, colours.GREEN, colours.RED, colours.BLUE]
    color = factor_cmap("kind", palette=palette, factors=TIMELINE_KINDS)
    drawn.scatter("at_ms", "kind", source=source, size=10, color=color, alpha=0.8, marker="diamond")

    def show(view: View) -> None:
        entries = view.job.get("timeline", ()) if view.job else ()
        update_source(source, timeline_columns(entries))

    return Panel("timeline", drawn, show)
