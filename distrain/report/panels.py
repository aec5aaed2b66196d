"""Single plots of a run, drawn into axes of matplotlib that somebody else made."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distrain.coordinator.view import Record

TRAIN_COLOUR, VALID_COLOUR = "#3b6fb6", "#d1495b"
PHASE_COLOURS = {
    "data_wait": "#d1495b",
    "copy": "#edae49",
    "forward_backward": "#3b6fb6",
    "exchange": "#66a182",
    "optimizer": "#8d6a9f",
    "evaluate": "#c7c7c7",
    "checkpoint": "#b08968",
    "save": "#9a9a9a",
    "other": "#dedede",
}
MOST_POINTS = 2000
"""Of a curve; more cannot be told apart on a page."""

Along = Callable[[Record], float]


def millions(record: Record) -> float:
    """How far a run was, in millions of rows trained."""
    return record.rows_total / 1e6


def minutes(record: Record) -> float:
    """How far a run was, in minutes of wall time."""
    return record.elapsed_s / 60


ALONG_LABELS = {millions: "rows trained [millions]", minutes: "wall time [minutes]"}


def draw_metric(
    axes: Any,
    train: Sequence[Record],
    valid: Sequence[Record],
    name: str,
    label: str,
    along: Along = millions,
) -> None:
    """Draw loss or AUC of training and validation; an AUC's bound as a band."""
    for records, colour, what, mark in (
        (train, TRAIN_COLOUR, "train, before the update", ""),
        (valid, VALID_COLOUR, "valid", "o"),
    ):
        known = thinned([record for record in records if getattr(record, name) is not None])
        places = [along(record) for record in known]
        values = [getattr(record, name) for record in known]
        axes.plot(places, values, color=colour, label=what, marker=mark or None, linewidth=1.2)
        if name == "auc" and known:
            bounds = [record.auc_bound or 0.0 for record in known]
            low = [v - b for v, b in zip(values, bounds, strict=True)]
            high = [v + b for v, b in zip(values, bounds, strict=True)]
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel(label)
    axes.legend(frameon=False)


def leave_out_the_start(axes: Any, train: Sequence[Record]) -> None:
    """Keep the first records, whose loss may be many times the rest, from flattening the curve."""
    settled = [r.loss for r in train[len(train) // 20 + 1 :] if r.loss is not None]
    if settled:
        low, high = min(settled), max(settled)
        axes.set_ylim(low - 0.1 * (high - low), high + 0.2 * (high - low) + 1e-6)


def draw_speed(axes: Any, train: Sequence[Record], along: Along = millions) -> None:
    """Draw rows/s of all ranks."""
    shown = thinned(train)
    axes.plot(
        [along(record) for record in shown],
        [record.rows_per_s or 0.0 for record in shown],
        color=TRAIN_COLOUR,
        linewidth=1.2,
    )
    axes.set_ylabel("rows/s, all ranks")
    axes.set_ylim(bottom=0)


def draw_shares(axes: Any, train: Sequence[Record], along: Along = millions) -> None:
    """Draw the shares of wall time by phase, of the mean rank."""
    shown = thinned(train)
    phases = [p for p in PHASE_COLOURS if any((r.seconds or {}).get(p, 0.0) > 0 for r in shown)]
    totals = [sum((r.seconds or {}).values()) or 1.0 for r in shown]
    shares = [
        [
            100 * (r.seconds or {}).get(p, 0.0) / total
            for r, total in zip(shown, totals, strict=True)
        ]
        for p in phases
    ]
    if phases:
        places = [along(record) for record in shown]
        colours = [PHASE_COLOURS[p] for p in phases]
        axes.stackplot(places, *shares, labels=phases, colors=colours)
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_ylim(0, 100)
    axes.set_ylabel("wall time [%], mean rank")


def draw_bars(axes: Any, seconds: Sequence[Mapping[str, float]], names: Sequence[str]) -> None:
    """Draw a stacked bar of seconds by phase for each rank, the first on top."""
    left = [0.0] * len(seconds)
    for phase, colour in PHASE_COLOURS.items():
        widths = [of_rank.get(phase, 0.0) for of_rank in seconds]
        if any(widths):
            axes.barh(names, widths, left=left, color=colour, label=phase)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("wall time [s]")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def thinned(records: Sequence[Record], most: int = MOST_POINTS) -> list[Record]:
    """At most so many records, evenly, the last among them."""
    every = -(-len(records) // most) or 1
    return list(records[::-1][::every][::-1])
