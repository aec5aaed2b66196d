"""Statistics of transformed rows, and the columns that have drifted since the fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from distrain.errors import InputError
from distrain.prep.lists import Lists, holds_lists
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.numbers import Moments, Normalize
from distrain.prep.operators.operator import concrete
from distrain.prep.steps import NULL_ID
from distrain.prep.workflow import FITTED_ON, Workflow

UPDATES = "updates"
"""The field of a workflow's record that has one entry for each update."""

_FIRST_COARSE = 2.0**24  # float32 is exact for integers below
_FEW_STEPS = 1000


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of some transformed rows; for list columns, of the items."""

    unknown: Mapping[str, int]  # out-of-vocabulary values, by categorical column
    not_missing: Mapping[str, int]  # values that were not missing, by categorical column
    # the sum of the written values, for each column whose last operator is Normalize
    sums: Mapping[str, float]
    numbers: Mapping[str, int]  # the number of values in each of `sums`
    # the minimum and maximum written value, for other continuous columns, labels and weights
    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of_all(cls, parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
        """Return the statistics of the rows of all parts, at least one."""
        unknown: Counter[str] = Counter()
        not_missing: Counter[str] = Counter()
        sums = dict.fromkeys(parts[0].sums, 0.0)
        numbers: Counter[str] = Counter()
        ranges: dict[str, tuple[float, float]] = {}
        for part in parts:
            unknown.update(part.unknown)
            not_missing.update(part.not_missing)
            numbers.update(part.numbers)
            for column, total in part.sums.items():
                sums[column] += total
            for column, (least, greatest) in part.ranges.items():
                low, high = ranges.get(column, (least, greatest))
                ranges[column] = min(low, least), max(high, greatest)
        return cls(unknown, not_missing, sums, numbers, ranges)

    def coarse(self) -> dict[str, tuple[float, float]]:
        """Return the minimum and maximum of each column whose range has few float32 numbers.

        These are ranges that reach 2^24 (in absolute value) and have fewer than 1,000 float32
        numbers, for example the seconds since 1970 of one day.
        """
        coarse_ranges = {}
        for column, (least, greatest) in self.ranges.items():
            largest = max(-least, greatest)
            step = float(np.spacing(np.float32(largest)))
            if largest >= _FIRST_COARSE and greatest - least < _FEW_STEPS * step:
                coarse_ranges[column] = least, greatest
        return coarse_ranges

    def unknown_share(self) -> dict[str, float]:
        return {
            column: round(count / max(self.not_missing[column], 1), 6)
            for column, count in self.unknown.items()
        }

    def mean_shifts(self) -> dict[str, float]:
        """Return the shift of each normalised column's mean, in fitted standard deviations."""
        return {column: total / max(self.numbers[column], 1) for column, total in self.sums.items()}


def seen_in(workflow: Workflow, written: pa.Table, beside: Sequence[str] = ()) -> ColumnStatistics:
    """Return the statistics of written rows.

    `beside` names columns that are not features, such as labels and weights; of these, only float32
    columns get statistics.
    """
    unknown, not_missing, sums, numbers, ranges = {}, {}, {}, {}, {}
    for group in workflow.groups:
        last = group.operators[-1] if group.operators else None
        for column in group.columns:
            if isinstance(last, Categorify):
                ids = _items(written[column])
                first = last.vocabularies[column].first_value_id
                not_missing[column] = len(ids) - int(np.count_nonzero(ids == NULL_ID))
                unknown[column] = not_missing[column] - int(np.count_nonzero(ids >= first))
                continue
            values = _items(written[column])
            if isinstance(last, Normalize):
                sums[column] = float(values.sum(dtype=np.float64))
                numbers[column] = len(values)
            elif len(values):
                ranges[column] = float(values.min()), float(values.max())
    for column in beside:
        if pa.types.is_float32(written.schema.field(column).type) and written.num_rows:
            values = _items(written[column])
            ranges[column] = float(values.min()), float(values.max())
    return ColumnStatistics(unknown, not_missing, sums, numbers, ranges)


def _items(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    values = concrete(column)
    if holds_lists(values.type):
        values = Lists.of(values).items
    items: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return items


@dataclass(frozen=True)
class Shares:
    """The share of missing values of each column, and that of values without an id, in a split.

    The second is a share of the values that are not missing.
    """

    rows: int  # the split's rows
    missing: Mapping[str, float]  # by column; for lists, of whole lists
    unknown: Mapping[str, float]  # by categorical column; for lists, of their items

    def kept_in(self, workflow: Workflow, inputs: Sequence[str]) -> Workflow:
        """Return the workflow with these shares in its record, to find drift in later rows.

        They must be the shares of the rows that the workflow was fitted on. `inputs` are the paths
        of the files of these rows.
        """
        fitted_on = {
            "inputs": list(inputs),
            "rows": self.rows,
            "missing_share": dict(self.missing),
            "unknown_share": dict(self.unknown),
        }
        return workflow.with_record(**{FITTED_ON: fitted_on})

    @classmethod
    def of_fit(cls, workflow: Workflow) -> Self | None:
        """Return the shares of the rows that a workflow was fitted on; `None` if not recorded."""
        fitted_on = workflow.record.get(FITTED_ON)
        if not isinstance(fitted_on, Mapping):
            return None
        return cls(
            fitted_on.get("rows", 0),
            fitted_on.get("missing_share", {}),
            fitted_on.get("unknown_share", {}),
        )


@dataclass(frozen=True)
class DriftBounds:
    """Bounds of the difference from the fitted data, above which a column counts as drifted."""

    # for the mean of a normalised column, in its fitted standard deviations
    mean: float = 0.5
    # for the shares of missing and of unknown values: their maximum growth
    share: float = 0.1

    def __post_init__(self) -> None:
        for name, bound in asdict(self).items():
            if not bound >= 0:
                raise InputError(f"the drift bound of the {name} is {bound}, below 0")


@dataclass(frozen=True)
class Drifted:
    """A statistic of a column that has changed since the fit by more than its bound."""

    split: str  # `train` or `valid`
    column: str
    # which statistic: the mean (before Normalize), or a share of the values
    what: Literal["mean", "missing_share", "unknown_share"]
    fitted: float  # the statistic in the rows that the workflow was fitted on
    found: float  # the statistic in the split
    # the difference `found - fitted`; for a mean, in fitted standard deviations
    by: float
    bound: float  # the bound of `by`


def drifted_columns(
    split: str,
    workflow: Workflow,
    actual: Shares,
    shifts: Mapping[str, float],
    bounds: DriftBounds,
) -> list[Drifted]:
    """Return the statistics of a split that have changed since the fit by more than their bounds.

    Means may rise or fall; shares count only if they grow. `actual` has the split's shares, and
    `shifts` is from `ColumnStatistics.mean_shifts`.
    """
    drifted = []
    for column, moments in _moments(workflow):
        by = shifts.get(column, 0.0)
        if abs(by) > bounds.mean:
            mean = moments.mean + by * moments.std
            figures = (round(moments.mean, 6), round(mean, 6), round(by, 6))
            drifted.append(Drifted(split, column, "mean", *figures, bounds.mean))
    fitted = Shares.of_fit(workflow)
    if fitted is not None:
        drifted += _grown(split, "missing_share", fitted.missing, actual.missing, bounds.share)
        drifted += _grown(split, "unknown_share", fitted.unknown, actual.unknown, bounds.share)
    return drifted


def _moments(workflow: Workflow) -> Iterator[tuple[str, Moments]]:
    for group in workflow.groups:
        if group.operators and isinstance(group.operators[-1], Normalize):
            for column in group.columns:
                yield column, group.operators[-1].moments[column]


def _grown(
    split: str,
    figure: Literal["missing_share", "unknown_share"],
    fitted: Mapping[str, float],
    actual: Mapping[str, float],
    bound: float,
) -> Iterator[Drifted]:
    for column, share in actual.items():
        by = share - fitted.get(column, share)
        if by > bound:
            yield Drifted(split, column, figure, fitted[column], share, round(by, 6), bound)


def learnt_before(workflow: Workflow, inputs: Sequence[str]) -> tuple[str, ...]:
    """Return those of the paths `inputs` on which the workflow was fitted or updated before."""
    updates = workflow.record.get(UPDATES)
    days = [workflow.record.get(FITTED_ON), *(updates if isinstance(updates, list) else [])]
    known = {path for day in days if isinstance(day, Mapping) for path in day.get("inputs", [])}
    return tuple(path for path in inputs if path in known)
