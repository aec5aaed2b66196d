"""A panel: one figure, and how it follows a job."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    HoverTool,
    LayoutDOM,
    Legend,
    NumeralTickFormatter,
)
from bokeh.plotting import figure

from distrain.pages.watching import View

_HEIGHT = 250
_MIN_WIDTH = 360
"""Least width of a figure; figures that do not fit beside each other wrap."""
_TICKS = 3
"""Labels of an axis, about: more labels of times would overlap."""
_TOOLS = "pan,xwheel_zoom,box_zoom,reset,save"


@dataclass(frozen=True)
class Panel:
    """One figure that follows a job.

    Attributes:
        name: The NAME in `/individual-distrain-NAME`.
        root: The model to lay out.
        show: Brings the figure up to date; called on each look.
        set_x: Draws over `rows_total` or `elapsed_s`, where that can be chosen.
        set_window: Shows `total_seconds` or `seconds`, where that can be chosen.
    """

    name: str
    root: LayoutDOM
    show: Callable[[View], None]
    set_x: Callable[[str], None] | None = None
    set_window: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.root.name = self.name


def draw(title: str, y_label: str, *, tooltips: list[tuple[str, str]], **options: Any) -> figure:
    """An empty figure in the style of the page; without tooltips nothing follows the pointer."""
    drawn = figure(
        title=title,
        height=_HEIGHT,
        min_width=_MIN_WIDTH,
        sizing_mode="stretch_width",
        tools=_TOOLS,
        toolbar_location="above",
        y_axis_label=y_label,
        **options,
    )
    if tooltips:
        drawn.add_tools(HoverTool(tooltips=tooltips))
    drawn.toolbar.logo = None
    return drawn


def legend_above(drawn: figure) -> Legend:
    legend = Legend(
        items=[],
        orientation="horizontal",
        label_text_font_size="8pt",
        border_line_color=None,
        spacing=8,
        padding=0,
        margin=0,
        glyph_height=12,
        glyph_width=16,
    )
    drawn.add_layout(legend, "above")
    return legend


def show_over(drawn: figure, x: str) -> None:
    axis = drawn.xaxis[0]
    if x == "rows_total":
        axis.axis_label = "rows trained"
        axis.formatter = NumeralTickFormatter(format="0.[00]a")
        axis.ticker = AdaptiveTicker(base=10, mantissas=[1, 2, 5], desired_num_ticks=_TICKS)
    else:
        axis.axis_label = "training time, h:min:s"
        axis.formatter = NumeralTickFormatter(format="00:00:00")
        axis.ticker = AdaptiveTicker(
            base=60, mantissas=[1, 2, 5, 10, 15, 30], min_interval=1, desired_num_ticks=_TICKS
        )


def source_of(*names: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in names})
