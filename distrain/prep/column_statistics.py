"""Statistics of transformed rows: out-of-vocabulary values, and ranges of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.prep.lists import Lists, holds_lists
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.numbers import Normalize
from distrain.prep.operators.operator import concrete
from distrain.prep.steps import NULL_ID
from distrain.prep.workflow import Workflow

_FIRST_COARSE = 2.0**24  # float32 is exact for integers below
_FEW_STEPS = 1000


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of some transformed rows; for list columns, of the items."""

    unknown: Mapping[str, int]  # out-of-vocabulary values, by categorical column
    not_missing: Mapping[str, int]  # values that were not missing, by categorical column
    # the minimum and maximum written value, for continuous columns whose last operator is not
    # Normalize, labels and weights
    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of_all(cls, parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
        """Return the statistics of the rows of all parts, at least one."""
        unknown: Counter[str] = Counter()
        not_missing: Counter[str] = Counter()
        ranges: dict[str, tuple[float, float]] = {}
        for part in parts:
            unknown.update(part.unknown)
            not_missing.update(part.not_missing)
            for column, (least, greatest) in part.ranges.items():
                low, high = ranges.get(column, (least, greatest))
                ranges[column] = min(low, least), max(high, greatest)
        return cls(unknown, not_missing, ranges)

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


def seen_in(workflow: Workflow, written: pa.Table, beside: Sequence[str]) -> ColumnStatistics:
    """Return the statistics of written rows.

    `beside` names columns that are not features, such as labels and weights; of these, only float32
    columns get statistics.
    """
    unknown, not_missing, ranges = {}, {}, {}
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
            if len(values) and not isinstance(last, Normalize):
                ranges[column] = _range(values)
    for column in beside:
        if pa.types.is_float32(written.schema.field(column).type) and written.num_rows:
            ranges[column] = _range(_items(written[column]))
    return ColumnStatistics(unknown, not_missing, ranges)


def _range(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _items(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    values = concrete(column)
    if holds_lists(values.type):
        values = Lists.of(values).items
    items: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return items
