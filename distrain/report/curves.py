"""A run as a picture."""

import logging
from collections.abc import Sequence
from pathlib import Path
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


def draw_curves(records: Sequence[Record], title: str, path: Path) -> None:
    """Draw loss, AUC with its bound, rows/s and the time's use, as a PNG.

    Args:
        records: All records of a run, in order.
        title: The run's name.
        path: Where to write; the format is PNG whatever the name.
    """
    # Where the home folder takes no cache, matplotlib says so in two lines on every start.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    train = [record for record in records if record.split == "train"]
    valid = [record for record in records if record.split == "valid"]
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    loss, auc, speed, share = figure.subplots(2, 2).flatten()
    _draw_metric(loss, train, valid, "loss", "log loss [nats]")
    _leave_out_the_start(loss, train)
    _draw_metric(auc, train, valid, "auc", "AUC")
    speed.plot(
        _millions(train), [r.rows_per_s or 0.0 for r in train], color=TRAIN_COLOUR, linewidth=1.2
    )
    speed.set_ylabel("rows/s, all ranks")
    speed.set_ylim(bottom=0)
    _draw_shares(share, train)
    for axes in (loss, auc, speed, share):
        axes.set_xlabel("rows trained [millions]")
        axes.grid(alpha=0.25)
    figure.savefig(path, format="png", dpi=110)


def _draw_metric(
    axes: Any, train: Sequence[Record], valid: Sequence[Record], name: str, label: str
) -> None:
    for records, colour, what, mark in (
        (train, TRAIN_COLOUR, "train, before the update", ""),
        (valid, VALID_COLOUR, "valid", "o"),
    ):
        known = [record for record in records if getattr(record, name) is not None]
        values = [getattr(record, name) for record in known]
        axes.plot(
            _millions(known), values, color=colour, label=what, marker=mark or None, linewidth=1.2
        )
        if name == "auc" and known:
            bounds = [record.auc_bound or 0.0 for record in known]
            low = [v - b for v, b in zip(values, bounds, strict=True)]
            high = [v + b for v, b in zip(values, bounds, strict=True)]
            axes.fill_between(_millions(known), low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel(label)
    axes.legend(frameon=False)


def _leave_out_the_start(axes: Any, train: Sequence[Record]) -> None:
    """Keep the first records, whose loss may be many times the rest, from flattening the curve."""
    settled = [r.loss for r in train[len(train) // 20 + 1 :] if r.loss is not None]
    if settled:
        low, high = min(settled), max(settled)
        axes.set_ylim(low - 0.1 * (high - low), high + 0.2 * (high - low) + 1e-6)


def _draw_shares(axes: Any, train: Sequence[Record]) -> None:
    phases = [p for p in PHASE_COLOURS if any((r.seconds or {}).get(p, 0.0) > 0 for r in train)]
    totals = [sum((r.seconds or {}).values()) or 1.0 for r in train]
    shares = [
        [
            100 * (r.seconds or {}).get(p, 0.0) / total
            for r, total in zip(train, totals, strict=True)
        ]
        for p in phases
    ]
    if phases:
        axes.stackplot(
            _millions(train), *shares, labels=phases, colors=[PHASE_COLOURS[p] for p in phases]
        )
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_ylim(0, 100)
    axes.set_ylabel("wall time [%], mean rank")


def _millions(records: Sequence[Record]) -> list[float]:
    return [record.rows_total / 1e6 for record in records]
