"""A run as a picture."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.coordinator.view import Record
from distrain.report.panels import draw_metric, draw_shares, draw_speed, fit_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_curves(records: Sequence[Record], title: str, path: Path) -> None:
    """Draw loss, AUC with its bound, rows/s and the time's use, as a PNG.

    Args:
        records: All records of a run, in order.
        title: The run's name.
        path: Where to write; the format is PNG whatever the name.
    """
    figure = new_figure(11, 7)
    train = [record for record in records if record.split == "train"]
    valid = [record for record in records if record.split == "valid"]
    figure.suptitle(title, parse_math=False)
    loss, auc, speed, share = figure.subplots(2, 2).flatten()
    draw_metric(loss, train, valid, "loss", "log loss [nats]")
    fit_range(loss, [train], valid, "loss")
    draw_metric(auc, train, valid, "auc", "AUC")
    draw_speed(speed, train)
    draw_shares(share, train)
    for axes in (loss, auc, speed, share):
        axes.set_xlabel("rows trained [millions]")
        axes.grid(alpha=0.25)
    figure.savefig(path, format="png", dpi=110)


def new_figure(width_in: float, height_in: float) -> "Figure":
    """An empty figure that needs no screen; sizes in inches."""
    # Where the home folder takes no cache, matplotlib says so in two lines on every start.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
