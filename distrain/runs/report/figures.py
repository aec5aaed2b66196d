"""Makes the figures of run folders and reports."""

import io
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.formatting import MAIN_METRICS, count, target_name
from distrain.jobs.job_view import Record
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.runs.report import colours
from distrain.runs.report.axes import (
    XAxis,
    draw_bars,
    draw_group_rows,
    draw_line,
    draw_metric,
    draw_reliability,
    draw_shares,
    legend_above,
    x_axis_of,
)
from distrain.runs.run_data import RunData
from distrain.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_TARGETS = 16
_HALF_IN = (5.5, 3.4)  # the size of a figure beside another
_ROWS_PER_S = "rows/s, all ranks"


def new_figure(width_in: float, height_in: float) -> "Figure":
    """Return an empty figure that needs no display; sizes in inches."""
    # matplotlib warns at every start if it cannot write a cache to the home folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_curves(
    records: Sequence[Record], title: str, path: Path, model_step: int | None = None
) -> None:
    """Write a PNG with plots of loss, AUC with its error bound, rows/s and shares of wall time.

    Without a binary target, the first two of `metric_curves` replace loss and AUC. A line marks
    `model_step`, the step of the saved model, unless it is the last step or `None`.
    """
    figure = new_figure(11, 7)
    train = [record for record in records if record.split == "train"]
    valid = [record for record in records if record.split == "valid"]
    figure.suptitle(title, parse_math=False)
    x_axis = x_axis_of(records, "rows_total")
    first, second, speed, share = figure.subplots(2, 2).flatten()
    for axes, (name, label) in zip((first, second), metric_curves(records).items(), strict=False):
        draw_metric(axes, train, valid, name, label, x_axis)
        _mark_saved_step(axes, records, model_step, x_axis)
    draw_line(speed, train, "rows_per_s", _ROWS_PER_S, x_axis)
    draw_shares(share, train, x_axis)
    for axes in (first, second, speed, share):
        _frame(axes, x_axis)
    figure.supxlabel(
        f"distrain {__version__}", fontsize="small", color=colours.GREY, x=0.99, ha="right"
    )
    figure.savefig(path, format="png", dpi=110)


def loss_image(records: Sequence[Record]) -> bytes:
    """Return a plot of the losses of training and validation, as SVG."""
    figure = new_figure(7, 2.6)
    axes = figure.subplots()
    train, valid = ([r for r in records if r.split == split] for split in ("train", "valid"))
    x_axis = x_axis_of(records, "rows_total")
    draw_metric(axes, train, valid, "loss", metric_curves(records).get("loss", "loss"), x_axis)
    _frame(axes, x_axis)
    return image_of(figure)


def metric_curves(records: Sequence[Record]) -> dict[str, str]:
    """Return the labels of the metrics to draw, by the metrics' names.

    These are the loss and AUC of the first binary target (for a retrieval model, its loss and
    recall), and the main metric (`MAIN_METRICS`) of
    up to `_MOST_TARGETS` other targets. If the only target is not binary, they are two of its
    metrics. A metric of such a target is named `TARGET.METRIC`, as in `Record.value`.
    """
    targets = next((one.targets for one in reversed(records) if one.targets), None) or {}
    metrics = {
        f"{target}.{metric}": f"{target_name(target)}: {MAIN_METRICS[metric]}"
        for target, of_target in islice(targets.items(), _MOST_TARGETS)
        for metric in MAIN_METRICS
        if of_target.get(metric) is not None
    }
    if any(RETRIEVAL_METRIC in (record.own or {}) for record in records):
        return {"loss": "loss", RETRIEVAL_METRIC: "recall at 10", **metrics}  # of retrieval
    if not targets or any(record.loss is not None for record in records):
        return {"loss": "log loss, nats", "auc": "AUC", **metrics}
    if len(metrics) == 1:
        (target,) = targets
        second = {"rmse": ("mae", "MAE"), "accuracy": ("log_loss", "log loss, nats")}
        name, label = second[next(iter(metrics)).rpartition(".")[2]]
        metrics[f"{target}.{name}"] = f"{target_name(target)}: {label}"
    return metrics


def run_figures(data: RunData) -> dict[str, list["Figure"]]:
    """Return a run's figures by name, in the order of the report; {} if there are no records.

    A name has one wide figure, or two that are shown beside each other. A figure is left out
    without values for it: that of reliability without a validation that has one, that of the
    learning rate without a record of it, and those of time without training records.
    """
    figures: dict[str, list[Figure]] = {}
    for name, label in metric_curves(data.records).items() if data.records else ():
        figures[name] = _pair(
            data, lambda axes, d, x, n=name, y=label: _draw_metric_of(axes, d, n, y, x)
        )
    reliability = next((r.reliability for r in reversed(data.valid) if r.reliability), None)
    if reliability:
        figures["reliability"] = _reliability(reliability)
    if any(record.lr is not None for record in data.train):
        figures["learning-rate"] = _pair(
            data, lambda axes, d, x: draw_line(axes, d.train, "lr", "learning rate", x)
        )
    if data.train:
        figures["rows-per-second"] = _pair(
            data, lambda axes, d, x: draw_line(axes, d.train, "rows_per_s", _ROWS_PER_S, x)
        )
        figures["time-over-rows"] = [_shares(data)]
        figures["time-by-rank"] = [_bars(data)]
    return figures


def image_of(figure: "Figure") -> bytes:
    """Return a figure as SVG with text as text; equal figures give equal bytes."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "distrain"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _pair(data: RunData, draw: Any) -> list["Figure"]:
    """Return the same plot over rows trained, and over training time.

    `draw` gets axes, the run's data and the x axis.
    """
    figures = []
    for x_axis in (x_axis_of(data.records, field) for field in ("rows_total", "elapsed_s")):
        figure = new_figure(*_HALF_IN)
        axes = figure.subplots()
        draw(axes, data, x_axis)
        for restart in data.restarts:
            place = _place(data.records, restart.get("step") or 0, x_axis)
            axes.axvline(place, color=colours.RED, linewidth=0.8, linestyle=":")
        _frame(axes, x_axis)
        figures.append(figure)
    return figures


def _frame(axes: Any, x_axis: XAxis) -> None:
    axes.set_xlabel(x_axis.label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _reliability(groups: Mapping[str, Sequence[float]]) -> list["Figure"]:
    figures = [new_figure(*_HALF_IN) for _ in range(2)]
    for figure, draw in zip(figures, (draw_reliability, draw_group_rows), strict=True):
        axes = figure.subplots()
        draw(axes, groups)
        axes.grid(alpha=0.25)
    return figures


def _shares(data: RunData) -> "Figure":
    figure = new_figure(11, 3.4)
    axes = figure.subplots()
    x_axis = x_axis_of(data.records, "rows_total")
    draw_shares(axes, data.train, x_axis)
    axes.set_xlabel(x_axis.label)
    return figure


def _bars(data: RunData) -> "Figure":
    of_ranks = data.rank_seconds()
    seconds = of_ranks or [data.mean_seconds()]
    names = [f"rank {rank}" for rank in range(len(of_ranks))] or ["mean rank"]
    figure = new_figure(11, min(20.0, 1.4 + 0.35 * len(seconds)))
    axes = figure.subplots()
    draw_bars(axes, seconds, names)
    return figure


def _draw_metric_of(axes: Any, data: RunData, name: str, label: str, x_axis: XAxis) -> None:
    draw_metric(axes, data.train, data.valid, name, label, x_axis)
    _mark_saved_step(axes, data.records, data.summary.get("model_step"), x_axis)


def _mark_saved_step(axes: Any, records: Sequence[Record], step: int | None, x_axis: XAxis) -> None:
    """Draw a line at `step`, the step of the saved model.

    Draws nothing if it is the last step or `None`.
    """
    if step is not None and step < records[-1].step:
        place = _place(records, step, x_axis)
        axes.axvline(place, color=colours.GREEN, linewidth=1, label=f"saved step {count(step)}")
        legend_above(axes)


def _place(records: Sequence[Record], step: int, x_axis: XAxis) -> float:
    """Return the position of a step on the x axis: that of the first record at or after the step.

    If there is none, it is that of the last record.
    """
    reached = (record for record in records if record.step >= step)
    return x_axis(next(reached, records[-1]))
