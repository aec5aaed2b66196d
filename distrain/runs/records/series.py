"""Keeps curves over a run's steps in bounded memory, and computes limits of plots; no I/O."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CAPACITY = 512  # largest number of points in a series; a plot needs no more
EARLY = 0.05  # share of a curve's points, at its start, that may be outside the range
FEW = 4  # a curve with fewer points is shown completely
_MARGIN = 0.06


@dataclass(frozen=True)
class SeriesColumn:
    name: str
    whole: bool = False  # whether values are integers


class Series:
    """A curve in bounded memory: points with named columns, of which every second is dropped.

    Readers see *shown* points: each `stride`-th added point. `stride` is 1 at first. When the
    series is full, every second shown point is dropped, and `stride` doubles. The newest point is
    kept apart until it is shown, so shown points change only when points are dropped or removed;
    then `generation` grows. Each shown point has the number with which it was shown, which `since`
    uses. The numbers must not decrease.

    Args:
        columns: The columns; `drop_after` compares the first one.
        capacity: The number of shown points at which half of them are dropped, even.
    """

    def __init__(self, columns: Sequence[SeriesColumn], capacity: int = CAPACITY):
        if capacity < 2 or capacity % 2:
            raise ValueError(f"the capacity of a series must be an even number, not {capacity}")
        self.columns = tuple(columns)
        self.capacity = capacity
        self.stride = 1  # points added per point shown
        self.generation = 0  # number of times that shown points were dropped or removed
        # the values of the shown points by column; NaN if unknown
        self._values = [array("d") for _ in self.columns]
        self._numbers = array("q")  # the numbers of the shown points, increasing
        self._newest: list[float] = []  # the newest point, shown or not; empty without points
        self._waiting = 0  # points added since the last shown point

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> float | None:
        """The first column's value in the newest point, even if that point is not shown yet.

        `None` without points; NaN if the value is unknown.
        """
        return self._newest[0] if self._newest else None

    def add(self, point: Mapping[str, float | None], number: int) -> None:
        """Append a point with a value per column, `None` or not finite if unknown.

        `number` is the point's number, for `since`.
        """
        self._newest = [_or_nan(point[column.name]) for column in self.columns]
        self._waiting += 1
        if self._waiting >= self.stride:
            self.finish(number)

    def finish(self, number: int) -> None:
        """Show the newest point, even if fewer than `stride` points were added before it.

        Call it at the end. `number` is the number of the last added point.
        """
        if not self._waiting:
            return
        self._numbers.append(number)
        for values, value in zip(self._values, self._newest, strict=True):
            values.append(value)
        self._waiting = 0
        if len(self) >= self.capacity:
            self._delete(slice(None, None, 2))
            self.stride *= 2
            self.generation += 1

    def drop_after(self, most: float) -> None:
        """Remove the points at the end whose first column is above `most`, such as a step."""
        if not self._newest or self._newest[0] <= most:
            return
        keep = len(self)
        while keep and self._values[0][keep - 1] > most:
            keep -= 1
        self.generation += keep < len(self)
        self._delete(slice(keep, None))
        self._newest = [values[-1] for values in self._values] if keep else []
        self._waiting = 0

    def _delete(self, shown: slice) -> None:
        del self._numbers[shown]
        for values in self._values:
            del values[shown]

    def tail(self) -> dict[str, Any]:
        """Return the newest point's values by column, even if that point is not shown yet.

        Empty if there are no points.
        """
        pairs = zip(self.columns, self._newest, strict=False)
        return {column.name: _shown(value, column.whole) for column, value in pairs}

    def since(self, number: int = 0) -> dict[str, list[Any]]:
        """Return the values of shown points whose number is at least `number`, by column."""
        first = bisect_left(self._numbers, number)
        return {
            column.name: [_shown(value, column.whole) for value in values[first:]]
            for column, values in zip(self.columns, self._values, strict=True)
        }


def _or_nan(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def _shown(value: float, whole: bool) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if whole else value


def curve_limits(
    curves: Iterable[Sequence[float | None]], whole: Iterable[float | None] = ()
) -> tuple[float, float] | None:
    """Return the lower and upper limit for a plot of curves, without outliers at their start.

    The first steps of a training may have many times the later loss, which would flatten the curve.
    A point among the first 5 % of a curve is left out if it is further from the range of the later
    points than that range is wide. No points of curves with fewer than `FEW` points are left out,
    and no values of `whole`, such as those of validation. Returns `None` without any values.

    >>> low, high = curve_limits([[9.0, 0.5, 0.45, 0.4]], whole=[0.41, 0.6])
    >>> low < 0.4, 0.6 < high < 0.7
    (True, True)
    >>> curve_limits([[None]]) is None
    True
    """
    early: list[float] = []
    settled = _finite(whole)
    for values in curves:
        finite = _finite(values)
        begun = math.ceil(EARLY * len(finite)) if len(finite) >= FEW else 0
        early += finite[:begun]
        settled += finite[begun:]
    if not settled:
        return None
    low, high = min(settled), max(settled)
    around = max(high - low, 0.1 * max(abs(low), abs(high)))
    near = [value for value in early if low - around <= value <= high + around]
    low, high = min([low, *near]), max([high, *near])
    room = _MARGIN * (high - low) or max(abs(high) * 0.01, 1e-6)
    return low - room, high + room


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
