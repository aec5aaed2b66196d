"""Measures drift: how much columns of new rows are distributed unlike a model's training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distrain.loader.dataset import Dataset
from distrain.loader.partition.scanning import Columns, sampled_groups, scan_columns
from distrain.loader.partition.table import RowGroup
from distrain.prep.transforming import raw_tables
from distrain.train.data.vocabularies import workflows_next_to

GROUPS = 10
DRIFTED = 0.25
"""A column whose population stability index (`column_drift`) is above this counts as drifted."""

_LEAST_SHARE = 1e-4
_KNOWN_ROWS = 5

Counts = npt.NDArray[Any]
Values = npt.NDArray[Any]


def column_drift(train: Dataset, dataset: Dataset) -> dict[str, float]:
    """Return the population stability index of each column, the largest first.

    The index is the sum of `(p - q) * ln(p / q)` over groups of values (Siddiqi 2006, "Credit Risk
    Scorecards"). `q` is a group's share of the values in `train` and `p` its share of those in
    `dataset`, both at least 0.0001. Missing values do not count; every item of a list does. A
    column that has values in only one of the two tables gets the index 9.2. Of large tables, only
    evenly spaced row groups with about two million rows in total are read.

    Columns of target means are left out, since they differ without drift: a training row has the
    mean over other training rows, and a later row the mean over all training rows.

    Raises:
        DataError: A file cannot be read.
    """
    indices = {}
    workflows = workflows_next_to(train.table.compact.files)
    labelled = {name for one in workflows for name in raw_tables(one).workflow.labelled}
    for column in train.columns:
        if column.name in labelled:
            continue
        old, new = (_values(of, column.name) for of in (train, dataset))
        groups = grouped_ids if column.kind == "id" else grouped_numbers
        has_both = len(old) and len(new)
        counts = groups(old, new) if has_both else (np.array([len(old)]), np.array([len(new)]))
        indices[column.name] = stability_index(*counts)
    return dict(sorted(indices.items(), key=lambda one: -one[1]))


def stability_index(old: Counts, new: Counts) -> float:
    """Return the population stability index of two arrays of counts, over the same groups.

    A group's share counts as at least `_LEAST_SHARE`, so groups may be empty.

    >>> round(stability_index(np.array([50]), np.array([0])), 4)
    9.2094
    >>> round(stability_index(np.array([50, 50]), np.array([75, 25])), 4)
    0.2747
    """
    q, p = (np.maximum(counts / max(counts.sum(), 1), _LEAST_SHARE) for counts in (old, new))
    return float(((p - q) * np.log(p / q)).sum())


def grouped_ids(old: Values, new: Values) -> tuple[Counts, Counts]:
    """Return how many old and how many new values are in each of eleven groups of ids, `[11]` each.

    Both arguments are arrays of ids, 0 or more, with at least one value each. The ids are sorted by
    their number of old values, the most frequent first, and cut into ten groups with about equally
    many old values. The eleventh group has the ids with fewer than five old values, because their
    frequencies are too uncertain.
    """
    size = 1 + max(old.max(), new.max())
    before, after = (np.bincount(ids, minlength=size) for ids in (old, new))
    order = np.argsort(-before, kind="stable")
    more_frequent = np.cumsum(before[order]) - before[order]
    group = np.where(before[order] >= _KNOWN_ROWS, more_frequent * GROUPS // len(old), GROUPS)
    old_rows, new_rows = (np.bincount(group, one[order], GROUPS + 1) for one in (before, after))
    return old_rows, new_rows


def grouped_numbers(old: Values, new: Values) -> tuple[Counts, Counts]:
    """Return how many old and how many new values are in each of twelve groups of numbers.

    There must be at least one old value. The first group has the numbers below all old values. The
    following groups are up to ten ranges with about equally many old values; equal numbers are in
    one group. The next group has the numbers above all old values. Any remaining groups are empty.
    """
    values, counts = np.unique(old, return_counts=True)
    group = (np.cumsum(counts) - counts) * GROUPS // len(old)
    firsts = values[np.flatnonzero(np.diff(group, prepend=-1))]

    def counted(numbers: Values) -> Counts:
        places = np.searchsorted(firsts, numbers, side="right") + (numbers > values[-1])
        return np.bincount(places, minlength=GROUPS + 2)

    return counted(old), counted(new)


def _values(dataset: Dataset, name: str) -> Values:
    def of_group(group: RowGroup, columns: Columns, _: int) -> Values:
        if name not in columns:  # it is in the name of a folder
            return np.full(group.num_rows, dict(group.constants)[name])
        values = columns[name].combine_chunks()
        while pa.types.is_nested(values.type):
            values = values.flatten()
        held: Values = values.drop_null().to_numpy(zero_copy_only=False)
        return held

    return np.concatenate(scan_columns(sampled_groups(dataset.table), [name], of_group))
