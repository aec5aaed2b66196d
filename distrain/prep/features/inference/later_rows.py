"""Finds the rows of a sample that are later than others, and columns that measure the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from distrain.prep.features.inference.column_facts import Facts
from distrain.prep.features.times import microseconds

Rows = np.ndarray[Any, np.dtype[np.int64]]

_FEW_TIMES = 10  # at most this number of distinct times are too few to split rows by
_LATEST = 0.1
_MOST_OUTSIDE = 0.5
_FEWEST_LATEST = 10  # fewer rows are outside by chance too often
_MOST_NEW = 0.1  # above it, `prep` warns about validation rows by default


def times_to_split_by(columns: Iterable[Facts]) -> Facts | None:
    """Return the first column of more than 10 distinct times without missing values, or `None`."""
    times = (facts for facts in columns if facts.kind == "time" and not facts.has_gaps)
    return next((facts for facts in times if facts.distinct > _FEW_TIMES), None)


def rows_by_time(columns: Sequence[Facts], split: Mapping[str, Any] | None) -> Rows | None:
    """Return the indices of the sample's rows in the order of their times, `[num_rows]`.

    `None` unless `split` is by time, or takes the last share of the rows. Also `None` if no column
    has usable times (`times_to_split_by`); in a split by time, only its column counts.
    """
    if split is None or split.get("by") not in ("time", "fraction"):
        return None
    by = times_to_split_by(f for f in columns if split.get("column") in (None, f.name))
    if by is None:
        return None
    order: Rows = np.argsort(microseconds(by.times).to_numpy(zero_copy_only=False), kind="stable")
    return order


def measures_time(facts: Facts, order: Rows) -> bool:
    """Return True if most numbers of the latest tenth of the rows are outside the earlier range.

    Such a column, for example a month in a table of one year, has no value in common with later
    rows. `order` are the rows in the order of their times. False for columns with missing values
    or of another kind than numbers, and if there are fewer than `_FEWEST_LATEST` latest rows.
    """
    if facts.kind != "number" or facts.has_gaps:
        return False
    numbers = facts.numbers[order]
    start = int(len(numbers) * (1 - _LATEST))
    earlier, latest = numbers[:start], numbers[start:]
    if len(latest) < _FEWEST_LATEST:
        return False
    outside = (latest < earlier.min()) | (latest > earlier.max())
    return bool(outside.mean() > _MOST_OUTSIDE)


def has_new_values(values: Rows, order: Rows) -> bool:
    """Return True if over a tenth of the latest tenth of the rows have values of no earlier row.

    `order` are the rows in the order of their times.
    """
    start = int(len(order) * (1 - _LATEST))
    is_new = ~np.isin(values[order[start:]], values[order[:start]])
    return bool(is_new.mean() > _MOST_NEW)
