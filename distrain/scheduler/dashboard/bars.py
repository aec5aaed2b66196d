"""Bar charts over ranks: time by phase, step times, GPUs, memory."""

from collections.abc import Callable
from typing import Any

from bokeh.models import FactorRange, HoverTool, Legend, LegendItem, Span
from bokeh.plotting import figure
from bokeh.transform import dodge, factor_cmap

from distrain.formatting import phase_name
from distrain.jobs.events import PHASES
from distrain.runs.report import colours
from distrain.scheduler.dashboard.figure_data import (
    Columns,
    Document,
    gpu_columns,
    memory_columns,
    phase_columns,
    step_time_columns,
    step_time_title,
)
from distrain.scheduler.dashboard.panel import (
    Panel,
    draw,
    legend_above,
    source_of,
    update_source,
)
from distrain.scheduler.dashboard.watching import View


def time_by_phase() -> Panel:
    """Return the panel with stacked bars of each rank's wall time by phase, in percent.

    It covers this attempt; the panel's `set_window` can switch it to each rank's last report.
    """
    window = "total_seconds"
    last: Document | None = None
    source = source_of("rank", "worker", *PHASES, *(f"{phase}_s" for phase in PHASES))
    drawn = draw("Where the time goes, by rank", "% of wall time", **_over_ranks(), tooltips=[])
    colors = [colours.PHASES[phase] for phase in PHASES]
    bars = drawn.vbar_stack(list(PHASES), x="rank", width=0.8, source=source, color=colors)
    items = [
        LegendItem(label=phase_name(phase), renderers=[bar])
        for phase, bar in zip(PHASES, bars, strict=True)
    ]
    style = {"label_text_font_size": "8pt", "spacing": 0, "padding": 4, "glyph_width": 12}
    # The stack's order from top to bottom.
    drawn.add_layout(Legend(items=items[::-1], **style), "right")
    drawn.y_range.start, drawn.y_range.end = 0, 100
    for phase, bar in zip(PHASES, bars, strict=True):
        tips = [
            ("rank", "@rank @worker"),
            (phase_name(phase), f"@{phase}{{0.0}} %, @{phase}_s{{0.00}} s"),
        ]
        drawn.add_tools(HoverTool(tooltips=tips, renderers=[bar], visible=False))

    def draw_bars() -> None:
        columns = phase_columns(_ranks(last), window)
        _set_factors(drawn, columns)
        update_source(source, columns)

    def show(view: View) -> None:
        nonlocal last
        last = view.job
        draw_bars()

    def set_window(chosen: str) -> None:
        nonlocal window
        window = chosen
        draw_bars()

    return Panel("time-by-phase", drawn, show, set_window=set_window)


def step_time() -> Panel:
    """Return the panel with bars of each rank's step time.

    The slowest rank is red and named in the title if it is significantly slower than the median
    (`is_straggler`).
    """
    source = source_of("rank", "worker", "step_time_ms", "is_slow")
    tips = [("rank", "@rank @worker"), ("a step", "@step_time_ms{0.00} ms")]
    drawn = draw("Time of a step", "ms a step", **_over_ranks(), tooltips=tips)
    color = factor_cmap("is_slow", palette=[colours.BLUE, colours.RED], factors=["no", "yes"])
    drawn.vbar(x="rank", top="step_time_ms", width=0.6, source=source, color=color)
    drawn.y_range.start = 0
    median = Span(location=0, dimension="width", line_dash="dashed", line_width=2)
    median.visible = False
    drawn.add_layout(median)

    def show(view: View) -> None:
        ranks = _ranks(view.job)
        slowest = view.job.get("slowest") if view.job else None
        columns = step_time_columns(ranks, slowest)
        _set_factors(drawn, columns)
        update_source(source, columns)
        drawn.title.text = step_time_title(slowest)
        median.visible = slowest is not None
        if slowest is not None:
            median.location = 1e3 * float(slowest["median_step_time_s"])

    return Panel("step-time", drawn, show)


def gpu() -> Panel:
    tips = [
        ("utilisation", "@utilisation_pct{0} %"),
        ("memory", "@memory_used_gib{0.0} of @memory_total_gib{0.0} GiB"),
    ]
    labels = {"utilisation_pct": "utilisation", "memory_pct": "memory"}
    title = "GPU utilisation and memory, by rank"
    panel = _two_bars("gpu", title, "%", gpu_columns, labels, tips)
    panel.root.y_range.end = 100
    return panel


def memory() -> Panel:
    labels = {"host_gib": "process", "device_gib": "tensors on its GPU"}
    tips = [(label, f"@{column}{{0.00}} GiB") for column, label in labels.items()]
    return _two_bars("memory", "Memory, by rank", "GiB", memory_columns, labels, tips)


def _two_bars(
    name: str,
    title: str,
    unit: str,
    columns_of: Callable[[list[Document]], Columns],
    labels: dict[str, str],
    tips: list[tuple[str, str]],
) -> Panel:
    source = source_of(*columns_of([]))
    drawn = draw(title, unit, **_over_ranks(), tooltips=[("rank", "@rank @worker"), *tips])
    legend = legend_above(drawn)
    for (column, label), at, color in zip(
        labels.items(), (-0.2, 0.2), (colours.GREEN, colours.YELLOW), strict=True
    ):
        x = dodge("rank", at, range=drawn.x_range)
        bar = drawn.vbar(x=x, top=column, width=0.35, source=source, color=color)
        legend.items.append(LegendItem(label=label, renderers=[bar]))
    drawn.y_range.start = 0
    drawn.visible = False

    def show(view: View) -> None:
        columns = columns_of(_ranks(view.job))
        drawn.visible = bool(columns["rank"])
        _set_factors(drawn, columns)
        update_source(source, columns)

    return Panel(name, drawn, show)


def _ranks(job: Document | None) -> list[Document]:
    return list(job.get("ranks", ())) if job else []


def _over_ranks() -> dict[str, Any]:
    return {"x_range": FactorRange(), "x_axis_label": "rank"}


def _set_factors(drawn: figure, columns: Columns) -> None:
    if list(drawn.x_range.factors) != columns["rank"]:
        drawn.x_range.factors = columns["rank"]
