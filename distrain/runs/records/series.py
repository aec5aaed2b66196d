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
    # the name of the weights with which merged points are averaged; "" if a merged point has the
    # later of their values
    weight: str = ""
    whole: bool = False  # whether values are whole numbers


class Series:
    """A curve in bounded memory: points with named columns, merged in pairs when it is full.

    Each point that readers see (a *shown* point) consists of `stride` added points: 1 at first,
    doubled by each merging. The last point is shown only once it consists of `stride` points, so
    shown points change only when pairs are merged or points are removed; then `generation` grows.
    Each shown point has the number of the last point added to it, which `since` uses. The numbers
    must not decrease.

    Args:
        columns: The columns; `drop_after` compares the first one.
        capacity: The largest number of shown points, even.
    """

    def __init__(self, columns: Sequence[SeriesColumn], capacity: int = CAPACITY):
        if capacity < 2 or capacity % 2:
            raise ValueError(f"the capacity of a series must be an even number, not {capacity}")
        self.columns = tuple(columns)
        self.capacity = capacity
        self.stride = 1  # points added per point shown
        self.generation = 0  # number of times that shown points were replaced or removed
        # Per column, the values of the points (NaN if unknown); the open point is the last. Columns
        # with means also have the weights of the known values.
        self._values = [array("d") for _ in self.columns]
        self._weights = [array("d") if column.weight else None for column in self.columns]
        self._numbers = array("q")  # the numbers of the shown points, increasing
        self._open = 0  # how many added points are in the open point, which is not shown yet

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> float | None:
        """The first column's value in the newest point, even if that point is not shown yet.

        `None` without points; NaN if the value is unknown.
        """
        return self._values[0][-1] if self._values[0] else None

    def add(
        self,
        point: Mapping[str, float | None],
        number: int,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Append a point with a value per column, `None` or not finite if unknown.

        Args:
            number: The point's number, for `since`.
            weights: The weights of means, by the name in `SeriesColumn.weight`; 1 if missing.
        """
        for at, column in enumerate(self.columns):
            value = _or_nan(point[column.name])
            self._values[at].append(value)
            of_column = self._weights[at]
            if of_column is not None:
                weight = (weights or {}).get(column.weight, 1.0)
                of_column.append(0.0 if math.isnan(value) else weight)
        if self._open:
            self._merge(len(self), len(self) + 1)
        self._open += 1
        if self._open >= self.stride:
            self.finish(number)

    def finish(self, number: int) -> None:
        """Show the last point, even if it consists of fewer than `stride` points.

        Call it at the end. `number` is the number of the last added point.
        """
        if not self._open:
            return
        self._numbers.append(number)
        self._open = 0
        if len(self) >= self.capacity:
            self.halve()

    def halve(self) -> None:
        """Merge the shown points in pairs, and double `stride`.

        If their number is odd, the last one is no longer shown: later points are merged into it.
        """
        odd, before = len(self) % 2, len(self._values[0])
        self._open += self.stride if odd else 0
        ends = [min(at + 2, before) for at in range(0, before, 2)]
        # An odd point is merged with the open point, if there is one.
        for at in range(len(self._values)):
            self._merge_pairs(at, ends)
        del self._numbers[: len(self) : 2]
        self.stride *= 2
        self.generation += 1

    def thin(self, most: int, number: int) -> None:
        """Show all points, merged until there are at most `most`; for the series' end.

        `number` is the number of the last added point.
        """
        self.finish(number)
        while len(self) > most:
            self.halve()
            self.finish(number)

    def drop_after(self, most: float) -> None:
        """Remove the points at the end whose first column is above `most`, such as a step.

        A merged point is removed as a whole.
        """
        keep = len(self._values[0])
        while keep and self._values[0][keep - 1] > most:
            keep -= 1
        if keep == len(self._values[0]):
            return
        self._open = 0
        if keep < len(self):
            self.generation += 1
            del self._numbers[keep:]
        for column in (*self._values, *self._weights):
            if column is not None:
                del column[keep:]

    def tail(self) -> dict[str, Any]:
        """Return the newest point's values by column, even if that point is not shown yet.

        Empty if there are no points.
        """
        if not self._values[0]:
            return {}
        pairs = zip(self.columns, self._values, strict=True)
        return {column.name: _shown(values[-1], column.whole) for column, values in pairs}

    def since(self, number: int = 0) -> dict[str, list[Any]]:
        """Return the values of shown points whose number is at least `number`, by column."""
        return self._from(bisect_left(self._numbers, number))

    def recent(self, count: int) -> dict[str, list[Any]]:
        return self._from(max(0, len(self) - count))

    def _from(self, first: int) -> dict[str, list[Any]]:
        return {
            column.name: [_shown(v, column.whole) for v in values[first : len(self)]]
            for column, values in zip(self.columns, self._values, strict=True)
        }

    def _merge(self, at: int, other: int) -> None:
        for values, weights in zip(self._values, self._weights, strict=True):
            values[at], weight = _merged(values, weights, at, other)
            del values[other]
            if weights is not None:
                weights[at] = weight
                del weights[other]

    def _merge_pairs(self, column: int, ends: Sequence[int]) -> None:
        values, weights = self._values[column], self._weights[column]
        merged = [_merged(values, weights, 2 * pair, end - 1) for pair, end in enumerate(ends)]
        values[:] = array("d", [value for value, _ in merged])
        if weights is not None:
            weights[:] = array("d", [weight for _, weight in merged])


def _merged(
    values: "array[float]", weights: "array[float] | None", first: int, second: int
) -> tuple[float, float]:
    """Return the value and weight of two merged points of a column.

    Without `weights`, the value is the later one that is not NaN, and the weight is 0. Otherwise
    the value is the weighted mean, and the weight the sum of the weights.

    Args:
        weights: The weights of `values`; 0 where the value is NaN.
        first: The index of the first point.
        second: The index of the second point; if it equals `first`, nothing is merged.
    """
    if weights is None:
        latest = values[first] if math.isnan(values[second]) else values[second]
        return latest, 0.0
    if first == second:
        return values[first], weights[first]
    total = weights[first] + weights[second]
    if total <= 0:
        return (values[first] if math.isnan(values[second]) else values[second]), 0.0
    if not weights[first] or not weights[second]:
        return values[first if weights[first] else second], total
    share = weights[second] / total
    return values[first] + share * (values[second] - values[first]), total


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
