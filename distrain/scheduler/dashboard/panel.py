"""`Panel`, one figure of the dashboard with its update functions; helpers to draw figures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    HoverTool,
    LayoutDOM,
    Legend,
    NumeralTickFormatter,
)
from bokeh.plotting import figure

from distrain.scheduler.dashboard.figure_data import Columns, Series
from distrain.scheduler.dashboard.watching import View

_HEIGHT = 250
_MIN_WIDTH = 360  # least width of a figure; figures that do not fit beside each other wrap
_TICKS = 3  # approximate number of labels on an axis; more labels of times would overlap
_TOOLS = "pan,xwheel_zoom,box_zoom,reset,save"


@dataclass(frozen=True)
class Panel:
    """A figure or table of the Training page, with the functions that update it."""

    name: str  # the name of its model in the Bokeh document
    root: LayoutDOM  # the model to lay out
    show: Callable[[View], None]  # brings the figure up to date; called on each look
    # sets the column of the x axis, `rows_total` or `elapsed_s`; `None` if it is fixed
    set_x: Callable[[str], None] | None = None
    # sets which times are shown, `total_seconds` or `seconds`; `None` if the figure has no choice
    set_window: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.root.name = self.name


def draw(title: str, y_label: str, *, tooltips: list[tuple[str, str]], **options: Any) -> figure:
    """Return an empty figure in the page's style; without tooltips it has no hover tool."""
    drawn = figure(
        title=title,
        height=_HEIGHT,
        min_width=_MIN_WIDTH,
        sizing_mode="stretch_width",
        tools=_TOOLS,
        toolbar_location="above",
        toolbar_inner=True,  # over the plot, and only under the pointer, to leave room for titles
        y_axis_label=y_label,
        **options,
    )
    if tooltips:
        drawn.add_tools(HoverTool(tooltips=tooltips))
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True
    drawn.axis.minor_tick_line_color = None
    drawn.axis.axis_label_text_font_style = "normal"
    return drawn


def compact_numbers() -> CustomJSTickFormatter:
    """Return a formatter that writes 1,500 as 1.5K and 2,000,000 as 2M.

    Bokeh's own abbreviations write millions as "m", which beside an axis of times reads as minutes.
    """
    return CustomJSTickFormatter(
        code='return tick.toLocaleString("en", {notation: "compact", maximumSignificantDigits: 3})'
    )


def legend_above(drawn: figure) -> Legend:
    """Add an empty legend above a figure, and return it."""
    legend = Legend(
        items=[],
        orientation="horizontal",
        location="left",
        ncols=2,  # a second row if another job is compared
        label_text_font_size="8pt",
        border_line_color=None,
        background_fill_alpha=0,
        spacing=8,
        padding=0,
        margin=0,
        glyph_height=12,
        glyph_width=16,
    )
    drawn.add_layout(legend, "above")
    return legend


def show_over(drawn: figure, x: str) -> None:
    """Set a figure's x axis to rows (`x` is `rows_total`) or to time (any other `x`)."""
    axis = drawn.xaxis[0]
    if x == "rows_total":
        axis.axis_label = "rows trained"
        axis.formatter = compact_numbers()
        axis.ticker = AdaptiveTicker(base=10, mantissas=[1, 2, 5], desired_num_ticks=_TICKS)
    else:
        axis.axis_label = "training time, h:min:s"
        axis.formatter = NumeralTickFormatter(format="00:00:00")
        axis.ticker = AdaptiveTicker(
            base=60, mantissas=[1, 2, 5, 10, 15, 30], min_interval=1, desired_num_ticks=_TICKS
        )


def source_of(*names: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in names})


KEPT_POINTS = 4_096
"""Maximum points of a curve in a browser; the curves in the job's history are much shorter."""


def update_source(source: ColumnDataSource, columns: Columns) -> bool:
    """Set a source's data to `columns`; return True if they differ from its data."""
    changed = {name: list(column) for name, column in source.data.items()} != columns
    if changed:
        source.data = columns
    return changed


def extend(source: ColumnDataSource, points: Series, replaces: bool) -> None:
    """Append points to a source, and keep its last `KEPT_POINTS`.

    With `replaces`, its earlier points are removed first.
    """
    if replaces:
        source.data = {name: values[-KEPT_POINTS:] for name, values in points.items()}
    elif any(len(values) for values in points.values()):
        source.stream(points, rollover=KEPT_POINTS)
