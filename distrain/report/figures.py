"""Figures of runs, and the plots: a run's curves, those of reports and comparisons."""

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain import colours
from distrain.documents import curve_limits
from distrain.jobs import Record
from distrain.progress import phase_shares
from distrain.runs import RunData
from distrain.wording import MAIN_METRICS, target_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 2000
"""Points of a curve at most; a page has no room for more."""
_FREE = "center right"
"""Where losses and AUCs leave room. To search for it, as matplotlib does, may take a second."""

Along = Callable[[Record], float]


def millions(record: Record) -> float:
    return record.rows_total / 1e6


def minutes(record: Record) -> float:
    return record.elapsed_s / 60


ALONG_LABELS: dict[Along, str] = {
    millions: "rows trained [millions]",
    minutes: "wall time [minutes]",
}


def draw_column(
    axes: Any, records: Sequence[Record], name: str, along: Along, **style: Any
) -> list[Record]:
    """Draw a column of the records that have it; returns those that were drawn."""
    shown = thinned([record for record in records if record.value(name) is not None])
    values = [record.value(name) for record in shown]
    axes.plot([along(record) for record in shown], values, linewidth=1.2, **style)
    return shown


def draw_metric(
    axes: Any,
    train: Sequence[Record],
    valid: Sequence[Record],
    name: str,
    label: str,
    along: Along = millions,
) -> None:
    """Draw a metric; an AUC with its bound as a band, others without a wild start."""
    for records, colour, what, mark in (
        (train, colours.TRAIN, "train, before the update", None),
        (valid, colours.VALID, "valid", "o"),
    ):
        scored = draw_column(axes, records, name, along, color=colour, label=what, marker=mark)
        if name == "auc" and scored:
            low = [(r.auc or 0.0) - (r.auc_bound or 0.0) for r in scored]
            high = [(r.auc or 0.0) + (r.auc_bound or 0.0) for r in scored]
            places = [along(record) for record in scored]
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel(label, parse_math=False)
    axes.legend(frameon=False, loc=_FREE)
    if name != "auc":
        fit_range(axes, [train], valid, name, along)


def fit_range(
    axes: Any,
    runs: Sequence[Sequence[Record]],
    valid: Sequence[Record],
    name: str,
    along: Along = millions,
) -> None:
    """Show all points but those of a wild start, which arrows at the edge stand for."""
    curves = [[record.value(name) for record in train] for train in runs]
    limits = curve_limits(curves, [record.value(name) for record in valid])
    if limits is None:
        return
    low, high = limits
    axes.set_ylim(low, high)
    values = [(r, r.value(name)) for train in runs for r in train]
    finite = [(along(r), value) for r, value in values if value is not None and isfinite(value)]
    above = [(place, value) for place, value in finite if value > high]
    below = [(place, value) for place, value in finite if value < low]
    for beyond, edge, mark, furthest in ((above, 1.0, "^", max), (below, 0.0, "v", min)):
        if beyond:
            axes.plot(
                [place for place, _ in beyond],
                [edge] * len(beyond),
                transform=axes.get_xaxis_transform(),
                color=colours.DARK, marker=mark, linestyle="", markersize=6, clip_on=False,
                label=f"outside, as far as {furthest(value for _, value in beyond):.3g}",
            )  # fmt: skip
            axes.legend(frameon=False, loc=_FREE)


def draw_line(
    axes: Any, train: Sequence[Record], name: str, label: str, along: Along = millions
) -> None:
    draw_column(axes, train, name, along, color=colours.TRAIN)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)


def draw_reliability(axes: Any, of: Mapping[str, Sequence[float]]) -> None:
    """Draw mean predictions against observed rates; bars are two standard errors of a rate."""
    predicted, observed = of["predicted"], of["observed"]
    errors = [2 * sqrt(p * (1 - p) / n) for p, n in zip(observed, of["rows"], strict=True)]
    top = 1.05 * max(*predicted, *(o + e for o, e in zip(observed, errors, strict=True)))
    axes.plot([0, top], [0, top], color=colours.GREY, linewidth=0.8, linestyle="--", label="equal")
    axes.errorbar(
        predicted, observed, yerr=errors, color=colours.VALID, marker="o", markersize=4,
        linewidth=1.2, elinewidth=0.8, label="groups of rows",
    )  # fmt: skip
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_xlabel("mean prediction")
    axes.set_ylabel("observed rate")
    axes.legend(frameon=False, loc="upper left")


def draw_group_rows(axes: Any, of: Mapping[str, Sequence[float]]) -> None:
    """Draw how many rows are in each group of `draw_reliability`, at its mean prediction."""
    axes.vlines(of["predicted"], 0, of["rows"], color=colours.VALID, linewidth=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("mean prediction")
    axes.set_ylabel("rows of the group")


def draw_shares(axes: Any, train: Sequence[Record]) -> None:
    shown = thinned(train)
    of_records = [phase_shares(record.seconds or {}) for record in shown]
    phases = [p for p in colours.PHASES if any(shares.get(p, 0.0) > 0 for shares in of_records)]
    if phases:
        places = [millions(record) for record in shown]
        colors = [colours.PHASES[p] for p in phases]
        lines = ([shares.get(phase, 0.0) for shares in of_records] for phase in phases)
        axes.stackplot(places, *lines, labels=phases, colors=colors)
        _legend_beside(axes)
    axes.set_ylim(0, 100)
    axes.set_ylabel("wall time [%], mean rank")


def draw_bars(axes: Any, seconds: Sequence[Mapping[str, float]], names: Sequence[str]) -> None:
    """Draw a stacked bar of seconds by phase for each rank, the first on top."""
    left = [0.0] * len(seconds)
    for phase, colour in colours.PHASES.items():
        widths = [of_rank.get(phase, 0.0) for of_rank in seconds]
        if any(widths):
            axes.barh(names, widths, left=left, color=colour, label=phase)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("wall time [s]")
    _legend_beside(axes)


def _legend_beside(axes: Any) -> None:
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def thinned(records: Sequence[Record], most: int = _MOST_POINTS) -> list[Record]:
    """At most `most` records at even distances, with the last."""
    every = -(-len(records) // most) or 1
    return list(records[::-1][::every][::-1])


_MOST_TARGETS = 16
_ROWS_PER_S = "rows/s, all ranks"


def new_figure(width_in: float, height_in: float) -> "Figure":
    """An empty figure that needs no screen; sizes in inches."""
    # Where the home folder takes no cache, matplotlib says so in two lines on every start.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_curves(records: Sequence[Record], title: str, path: Path) -> None:
    """Write loss, AUC with its bound, rows/s and shares of time as a PNG, whatever its name.

    Without a binary target, the metrics of the first two targets stand for loss and AUC.
    """
    figure = new_figure(11, 7)
    train = [record for record in records if record.split == "train"]
    valid = [record for record in records if record.split == "valid"]
    figure.suptitle(title, parse_math=False)
    first, second, speed, share = figure.subplots(2, 2).flatten()
    for axes, (name, label) in zip((first, second), metric_curves(records).items(), strict=False):
        draw_metric(axes, train, valid, name, label)
    draw_line(speed, train, "rows_per_s", _ROWS_PER_S)
    draw_shares(share, train)
    for axes in (first, second, speed, share):
        _frame(axes, millions)
    figure.savefig(path, format="png", dpi=110)


def metric_curves(records: Sequence[Record]) -> dict[str, str]:
    """The metrics to draw by name, with their labels: loss and AUC, and one of each other target.

    A single target that is not binary has two.
    """
    targets = next((one.targets for one in reversed(records) if one.targets), None) or {}
    metrics = {
        f"{target}.{metric}": f"{target_name(target)}: {MAIN_METRICS[metric]}"
        for target, of_target in islice(targets.items(), _MOST_TARGETS)
        for metric in MAIN_METRICS
        if of_target.get(metric) is not None
    }
    if not targets or any(record.loss is not None for record in records):
        return {"loss": "log loss [nats]", "auc": "AUC", **metrics}
    if len(metrics) == 1:
        (target,) = targets
        second = {"rmse": ("mae", "MAE"), "accuracy": ("log_loss", "log loss [nats]")}
        name, label = second[next(iter(metrics)).rpartition(".")[2]]
        metrics[f"{target}.{name}"] = f"{target_name(target)}: {label}"
    return metrics


def run_figures(data: RunData) -> dict[str, "Figure"]:
    """A run's figures by name, in the order of its report; none of a run without records."""
    figures: dict[str, Figure] = {}
    for name, label in metric_curves(data.records).items() if data.records else ():
        figures[name] = _pair(
            data, lambda axes, d, x, n=name, y=label: draw_metric(axes, d.train, d.valid, n, y, x)
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
        figures["time-over-rows"] = _shares(data)
        figures["time-by-rank"] = _bars(data)
        if data.restarts or data.checkpoint_steps():
            figures["timeline"] = _timeline(data)
    return figures


def comparison_figure(runs: Sequence[RunData], names: Sequence[str]) -> "Figure":
    figure = new_figure(11, 7)
    loss, valid_loss, auc, speed = figure.subplots(2, 2).flatten()
    for number, (data, run_name) in enumerate(zip(runs, names, strict=True)):
        colour = colours.RUNS[number % len(colours.RUNS)]
        style = "-" if number < len(colours.RUNS) else "--"
        scored = data.valid or data.train
        for axes, records, name in (
            (loss, data.train, "loss"),
            (valid_loss, data.valid, "loss"),
            (auc, scored, "auc"),
            (speed, data.train, "rows_per_s"),
        ):
            draw_column(
                axes, records, name, millions, color=colour, linestyle=style,
                marker="o" if records and records[0].split == "valid" else None,
                label=run_name if axes is loss else None,
            )  # fmt: skip
    loss.set_ylabel("log loss [nats], train")
    valid_loss.set_ylabel("log loss [nats], valid")
    auc.set_ylabel("AUC, valid or else train")
    speed.set_ylabel(_ROWS_PER_S)
    fit_range(loss, [data.train for data in runs], (), "loss")
    for axes in (loss, valid_loss, auc, speed):
        _frame(axes, millions)
    figure.legend(loc="outside upper center", frameon=False)
    return figure


def image_of(figure: "Figure") -> bytes:
    """A figure as SVG: its text as text, the same bytes for the same figure."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "distrain"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _pair(data: RunData, draw: Any) -> "Figure":
    """The same against rows and against wall time."""
    figure = new_figure(11, 3.4)
    for axes, along in zip(figure.subplots(1, 2), (millions, minutes), strict=True):
        draw(axes, data, along)
        for restart in data.restarts:
            place = _place(data, restart.get("step") or 0, along)
            axes.axvline(place, color=colours.RED, linewidth=0.8, linestyle=":")
        _frame(axes, along)
    return figure


def _frame(axes: Any, along: Along) -> None:
    axes.set_xlabel(ALONG_LABELS[along])
    axes.grid(alpha=0.25)


def _reliability(groups: Mapping[str, Sequence[float]]) -> "Figure":
    figure = new_figure(11, 3.4)
    left, right = figure.subplots(1, 2)
    draw_reliability(left, groups)
    draw_group_rows(right, groups)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure


def _shares(data: RunData) -> "Figure":
    figure = new_figure(11, 3.4)
    axes = figure.subplots()
    draw_shares(axes, data.train)
    axes.set_xlabel(ALONG_LABELS[millions])
    return figure


def _bars(data: RunData) -> "Figure":
    of_ranks = data.rank_seconds()
    seconds = of_ranks or [data.mean_seconds()]
    names = [f"rank {rank}" for rank in range(len(of_ranks))] or ["mean rank"]
    figure = new_figure(11, min(20.0, 1.4 + 0.35 * len(seconds)))
    axes = figure.subplots()
    draw_bars(axes, seconds, names)
    if data.recent is not None:
        steps = f"{data.recent.first_step:,} to {data.recent.last_step:,}"
        axes.set_xlabel(f"wall time [s] in the reports of steps {steps}")
    return figure


def _timeline(data: RunData) -> "Figure":
    figure = new_figure(11, 1.7)
    axes = figure.subplots()
    lanes = (
        ("checkpoints", data.checkpoint_steps(), colours.GREEN, "|"),
        ("restarts", [s.get("step") or 0 for s in data.restarts], colours.RED, "x"),
    )
    for row, (_, steps, colour, mark) in enumerate(lanes):
        places = [_place(data, step, minutes) for step in steps]
        axes.plot(places, [row] * len(places), color=colour, marker=mark, linestyle="", ms=9)
    axes.set_yticks(range(len(lanes)), [name for name, *_ in lanes])
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.set_xlim(0, max(minutes(record) for record in data.records) * 1.01 or None)
    axes.set_xlabel(ALONG_LABELS[minutes])
    axes.grid(alpha=0.25, axis="x")
    return figure


def _place(data: RunData, step: int, along: Along) -> float:
    """Where a step is: at the first record that holds it."""
    reached = (record for record in data.records if record.step >= step)
    return along(next(reached, data.records[-1]))
