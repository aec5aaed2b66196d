"""The table of jobs, and the time line of one."""

from bokeh.models import (
    CustomJS,
    DataTable,
    DatetimeTickFormatter,
    HTMLTemplateFormatter,
    StringFormatter,
    TableColumn,
)
from bokeh.transform import factor_cmap

from distrain.monitor.pages.changes import bring_up_to_date
from distrain.monitor.pages.columns import TIMELINE_KINDS, timeline_columns
from distrain.monitor.pages.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Panel,
    draw,
    source_of,
)
from distrain.monitor.pages.watching import View
from distrain.monitor.pages.wording import job_columns

_TITLES = {
    "name": ("name", 120),
    "state": ("state", 150),
    "progress_pct": ("progress", 110),
    "step": ("step", 110),
    "eta": ("to go", 70),
    "elapsed": ("so far", 70),
    "rows_per_s": ("rows/s", 80),
    "loss": ("loss", 60),
    "auc": ("AUC", 60),
    "valid_auc": ("valid. AUC", 70),
    "stall_pct": ("waits for data", 90),
    "num_ranks": ("ranks", 45),
    "restarts": ("restarts", 55),
    "checkpoints": ("checkpoints", 75),
    "job_id": ("job", 180),
}

# The value is a number that we made; nothing that people write enters this template.
_BAR = """<div style="background:#8884;width:100%;height:70%;margin-top:3px;position:relative">
<div style="background:#2ca02c99;width:<%= value %>%;height:100%"></div>
<span style="position:absolute;top:0;left:4px;line-height:14px"><%= value %> %</span></div>"""


def jobs() -> Panel:
    """All jobs that the scheduler remembers, newest first."""
    source = source_of(*job_columns([]))
    columns = [
        TableColumn(
            field=field,
            title=title,
            width=width,
            sortable=False,
            formatter=HTMLTemplateFormatter(template=_BAR)
            if field == "progress_pct"
            else StringFormatter(),
        )
        for field, (title, width) in _TITLES.items()
    ]
    table = DataTable(
        source=source,
        columns=columns,
        index_position=None,
        reorderable=False,
        height=150,
        sizing_mode="stretch_width",
        # What Dask does for its own tables: they would cover the navigation bar's menu.
        stylesheets=[".bk-data-table {z-index: 0;}"],
    )

    # Bokeh's table draws itself anew when its rows are others, not when a cell has changed.
    draw_anew = CustomJS(args={"view": table.view}, code="view.change.emit()")
    source.js_on_change("patching", draw_anew)

    def show(view: View) -> None:
        picked = [] if view.job is None else [str(view.job["job_id"])]
        if bring_up_to_date(source, job_columns(view.jobs)):
            source.selected.indices = []
        rows = [row for row, job_id in enumerate(source.data["job_id"]) if job_id in picked]
        if list(source.selected.indices) != rows:
            source.selected.indices = rows

    return Panel("jobs", table, show)


def timeline() -> Panel:
    """States, restarts, checkpoints, validations and notices, when they were."""
    source = source_of(*timeline_columns([]))
    drawn = draw(
        "What happened when",
        "",
        y_range=list(TIMELINE_KINDS),
        x_axis_type="datetime",
        x_axis_label="time of day, UTC",
        tooltips=[
            ("@kind", "@text"),
            ("at", "@at_ms{%F %T} UTC"),
            ("attempt, step", "@attempt, @step"),
        ],
    )
    drawn.hover.formatters = {"@at_ms": "datetime"}
    drawn.height = 180
    drawn.xaxis.formatter = DatetimeTickFormatter(
        milliseconds="%H:%M:%S", seconds="%H:%M:%S", minsec="%H:%M:%S"
    )
    color = factor_cmap("kind", palette=[GREY, ORANGE, GREEN, RED, BLUE], factors=TIMELINE_KINDS)
    drawn.scatter("at_ms", "kind", source=source, size=10, color=color, alpha=0.8, marker="diamond")

    def show(view: View) -> None:
        entries = view.job.get("timeline", ()) if view.job else ()
        bring_up_to_date(source, timeline_columns(entries))

    return Panel("timeline", drawn, show)
