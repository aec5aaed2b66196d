"""Draws single plots of a run into given matplotlib axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from distrain.formatting import phase_name
from distrain.jobs.job_view import Record
from distrain.runs.records.merging import phase_shares
from distrain.runs.records.series import curve_limits
from distrain.runs.report import colours

_MOST_POINTS = 2000
"""The largest number of points in a drawn curve."""

_UNITS: Mapping[str, tuple[str, Sequence[tuple[str, float]]]] = {
    "rows_total": ("rows trained", (("millions", 1e6), ("thousands", 1e3), ("", 1.0))),
    "elapsed_s": ("training time", (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))),
}


@dataclass(frozen=True)
class XAxis:
    """An x axis, called with a record to get its position.

    Attributes:
        field: The field of a record, `rows_total` or `elapsed_s`.
        unit: The value of the field at position 1.
    """

    field: str
    unit: float
    label: str

    def __call__(self, record: Record) -> float:
        return float(getattr(record, self.field)) / self.unit


def x_axis_of(records: Sequence[Record], field: str) -> XAxis:
    """Return the axis of a field, in the unit that suits the last of the records.

    `field` is `rows_total` or `elapsed_s`.
    """
    title, units = _UNITS[field]
    most = getattr(records[-1], field) if records else 0
    name, unit = next((one for one in units if most >= 2 * one[1]), units[-1])
    return XAxis(field, unit, f"{title} [{name}]" if name else title)


def draw_column(
    axes: Any, records: Sequence[Record], name: str, x_axis: XAxis, **style: Any
) -> list[Record]:
    """Draw the curve of the value `name` of records; return the drawn records.

    Records without the value are left out, and long curves are thinned.

    Args:
        x_axis: Returns the position of a record on the x axis.
        style: Further arguments of matplotlib's `plot`.
    """
    shown = thinned([record for record in records if record.value(name) is not None])
    values = [record.value(name) for record in shown]
    axes.plot([x_axis(record) for record in shown], values, linewidth=1.2, **style)
    return shown


def draw_metric(
    axes: Any,
    train: Sequence[Record],
    valid: Sequence[Record],
    name: str,
    label: str,
    x_axis: XAxis,
) -> None:
    """Draw the metric `name` (as in `Record.value`) of training and validation.

    An AUC has its error bound as a band. For other metrics, the y range is that of `fit_range`.
    `label` names the metric, and `x_axis` returns a record's position on the x axis.
    """
    for records, colour, text, style in (
        (train, colours.TRAIN, "training, before the update", {"linestyle": "--"}),
        (valid, colours.VALID, "validation", {"marker": "o", "markersize": 4}),
    ):
        scored = draw_column(axes, records, name, x_axis, color=colour, label=text, **style)
        if name == "auc" and scored:
            low = [(r.auc or 0.0) - (r.auc_bound or 0.0) for r in scored]
            high = [(r.auc or 0.0) + (r.auc_bound or 0.0) for r in scored]
            places = [x_axis(record) for record in scored]
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel(label, parse_math=False)
    if name != "auc":
        fit_range(axes, train, valid, name, x_axis)
    legend_above(axes)


def fit_range(
    axes: Any,
    train: Sequence[Record],
    valid: Sequence[Record],
    name: str,
    x_axis: XAxis,
) -> None:
    """Set the y range to all points except outliers at the start; arrows mark the outliers.

    Args:
        train: The training records.
        valid: The validation records, whose points are always in the range.
        name: The drawn value, as in `Record.value`.
    """
    curve = [record.value(name) for record in train]
    limits = curve_limits([curve], [record.value(name) for record in valid])
    if limits is None:
        return
    low, high = limits
    axes.set_ylim(low, high)
    values = [(r, r.value(name)) for r in train]
    finite = [(x_axis(r), value) for r, value in values if value is not None and isfinite(value)]
    above = [(place, value) for place, value in finite if value > high]
    below = [(place, value) for place, value in finite if value < low]
    for beyond, edge, mark, furthest in ((above, 1.0, "^", max), (below, 0.0, "v", min)):
        if beyond:
            axes.plot(
                [place for place, _ in beyond],
                [edge] * len(beyond),
                transform=axes.get_xaxis_transform(),
                color=colours.DARK, marker=mark, linestyle="", markersize=6, clip_on=False,
                label=f"off scale, to {furthest(value for _, value in beyond):.3g}",
            )  # fmt: skip


def draw_line(axes: Any, train: Sequence[Record], name: str, label: str, x_axis: XAxis) -> None:
    """Draw the curve of the value `name` of training records; the y axis begins at 0."""
    draw_column(axes, train, name, x_axis, color=colours.TRAIN)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    if name == "rows_per_s":
        axes.yaxis.set_major_formatter("{x:,.0f}")


def draw_reliability(axes: Any, of: Mapping[str, Sequence[float]]) -> None:
    """Draw the observed rate over the mean prediction of each group of rows.

    The bars are two standard errors of the rate. `of` is `Record.reliability`.
    """
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
    """Draw the number of rows over the mean prediction, for each group of rows.

    The groups are those of `draw_reliability`; `of` is `Record.reliability`.
    """
    axes.vlines(of["predicted"], 0, of["rows"], color=colours.VALID, linewidth=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("mean prediction")
    axes.set_ylabel("rows of the group")


def draw_shares(axes: Any, train: Sequence[Record], x_axis: XAxis) -> None:
    """Draw each phase's share of training time, the mean of all ranks, stacked, over `x_axis`.

    Phases that never took time are left out, and long runs are thinned by `thinned`.
    """
    shown = thinned(train)
    of_records = [phase_shares(record.seconds or {}) for record in shown]
    phases = [p for p in colours.PHASES if any(shares.get(p, 0.0) > 0 for shares in of_records)]
    if phases:
        places = [x_axis(record) for record in shown]
        colors = [colours.PHASES[p] for p in phases]
        lines = ([shares.get(phase, 0.0) for shares in of_records] for phase in phases)
        axes.stackplot(
            places, *lines, labels=[phase_name(phase) for phase in phases], colors=colors
        )
        _legend_beside(axes)
    axes.set_ylim(0, 100)
    axes.set_ylabel("training time [%], mean rank")


def draw_bars(axes: Any, seconds: Sequence[Mapping[str, float]], names: Sequence[str]) -> None:
    """Draw a stacked bar of seconds by phase for each rank, the first rank on top.

    `names` are the phases to draw.
    """
    left = [0.0] * len(seconds)
    for phase, colour in colours.PHASES.items():
        widths = [of_rank.get(phase, 0.0) for of_rank in seconds]
        if any(widths):
            axes.barh(names, widths, left=left, color=colour, label=phase_name(phase))
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("training time [s]")
    _legend_beside(axes)


def legend_above(axes: Any) -> None:
    """Place the legend above the plot, where it hides no curve."""
    axes.legend(
        frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0),
        ncols=2, borderaxespad=0.2, columnspacing=1.2,
    )  # fmt: skip


def _legend_beside(axes: Any) -> None:
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def thinned(records: Sequence[Record], most: int = _MOST_POINTS) -> list[Record]:
    """Return every n-th record, counted back from the last, so that at most `most` are left.

    n is the least number that does this; the records stay in order.
    """
    every = -(-len(records) // most) or 1
    return list(records[::-1][::every][::-1])
