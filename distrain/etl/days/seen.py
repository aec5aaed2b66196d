"""How rows looked to a fitted workflow: values without an id, and means after Normalize."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from distrain.etl.lists import Lists, holds_lists
from distrain.etl.operators import Categorify, Normalize, concrete
from distrain.etl.workflow import Workflow
from distrain.vocabulary import NULL_ID

FITTED_ON, UPDATES = "fitted_on", "updates"
"""Fields of the record: the rows that a workflow was fitted on, and each day that it learnt."""

_FIRST_COARSE = 2.0**24  # float32 has every whole number below
_FEW_STEPS = 1000


@dataclass(frozen=True)
class Seen:
    """Counts of some rows after a workflow; of lists, their items."""

    unknown: Mapping[str, int]  # values that had no id of their own, by categorical column
    not_missing: Mapping[str, int]  # values that were not missing, by categorical column
    # the sum of the values written, by column whose last operator is Normalize
    sums: Mapping[str, float]
    numbers: Mapping[str, int]  # how many values that are
    # the least and the greatest value written, by other continuous column
    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of_all(cls, parts: Sequence[Seen]) -> Seen:
        unknown: Counter[str] = Counter()
        not_missing: Counter[str] = Counter()
        sums = dict.fromkeys(parts[0].sums, 0.0)
        numbers: Counter[str] = Counter()
        ranges: dict[str, tuple[float, float]] = {}
        for part in parts:
            unknown.update(part.unknown)
            not_missing.update(part.not_missing)
            numbers.update(part.numbers)
            for column, found in part.sums.items():
                sums[column] += found
            for column, (least, greatest) in part.ranges.items():
                low, high = ranges.get(column, (least, greatest))
                ranges[column] = min(low, least), max(high, greatest)
        return cls(unknown, not_missing, sums, numbers, ranges)

    def coarse(self) -> dict[str, tuple[float, float]]:
        """The ranges in which float32 has few numbers, as of seconds since 1970 within a day."""
        found = {}
        for column, (least, greatest) in self.ranges.items():
            largest = max(-least, greatest)
            step = float(np.spacing(np.float32(largest)))
            if largest >= _FIRST_COARSE and greatest - least < _FEW_STEPS * step:
                found[column] = least, greatest
        return found

    def unknown_share(self) -> dict[str, float]:
        return {
            column: round(count / max(self.not_missing[column], 1), 6)
            for column, count in self.unknown.items()
        }

    def mean_shifts(self) -> dict[str, float]:
        """By column that Normalize ends, how far the mean is from the fitted one, in deviations."""
        return {column: total / max(self.numbers[column], 1) for column, total in self.sums.items()}


def seen_in(workflow: Workflow, written: pa.Table) -> Seen:
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
    return Seen(unknown, not_missing, sums, numbers, ranges)


def _items(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    values = concrete(column)
    if holds_lists(values.type):
        values = Lists.of(values).items
    items: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return items


@dataclass(frozen=True)
class Shares:
    """What share of a split's values was missing, and what share of the others had no id."""

    rows: int  # the split's rows
    missing: Mapping[str, float]  # by column; of lists, whole lists
    unknown: Mapping[str, float]  # by categorical column; of lists, their items

    def kept_in(self, workflow: Workflow, inputs: Sequence[str]) -> Workflow:
        """The workflow that says in `workflow.json` that these are of the rows it was fitted on."""
        fitted_on = {
            "inputs": list(inputs),
            "rows": self.rows,
            "missing_share": dict(self.missing),
            "unknown_share": dict(self.unknown),
        }
        return workflow.with_record(**{FITTED_ON: fitted_on})

    @classmethod
    def of_fit(cls, workflow: Workflow) -> Self | None:
        """Those of the rows that a workflow was fitted on; `None` if it does not say."""
        found = workflow.record.get(FITTED_ON)
        if not isinstance(found, Mapping):
            return None
        return cls(
            found.get("rows", 0), found.get("missing_share", {}), found.get("unknown_share", {})
        )


def learnt_before(workflow: Workflow, inputs: Sequence[str]) -> tuple[str, ...]:
    """Those of some inputs that the workflow was fitted on, or has learnt, under the same name."""
    updates = workflow.record.get(UPDATES)
    days = [workflow.record.get(FITTED_ON), *(updates if isinstance(updates, list) else [])]
    known = {path for day in days if isinstance(day, Mapping) for path in day.get("inputs", [])}
    return tuple(path for path in inputs if path in known)
