"""Operators that map a category to a number: its count, or the mean of its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from distrain.errors import DataError, InputError
from distrain.jobs.spec.fields import Real, Section
from distrain.prep.operators.numbers import alone_mistake
from distrain.prep.operators.operator import (
    DocumentKey,
    FittedByColumn,
    Takes,
    TrainingRows,
)
from distrain.prep.operators.value_table import Cells, Floats, Ints, ValueTable
from distrain.prep.vocabulary import stable_buckets

NUM_FOLDS = 8
MOST_VALUES = 1 << 23
BLOCKS = (1 / 512, 1 / 128, 1 / 32, *np.arange(1, 16) / 16)
"""The quantiles of the training rows' times that separate blocks of time.

The first blocks are short: rows of the first block have no earlier rows, so their target mean is 0.
"""


def fold_numbers(num_rows: int, name: str = "") -> Ints:
    """Return the fold of each training row, int64 `[rows]` below `NUM_FOLDS`.

    Equal arguments give equal folds.

    Args:
        name: Identifies the rows' file or part, so that each has its own folds.
    """
    (seed,) = stable_buckets(pa.array([name]), 1 << 31).tolist()
    return stable_buckets(pa.array(np.arange(num_rows) + (seed << 32)), NUM_FOLDS).astype(np.int64)


def check_number(num_values: int) -> None:
    """Raise a `DataError` if a table would have more than `MOST_VALUES` values."""
    if num_values > MOST_VALUES:
        raise DataError(
            f"{num_values:,} different values; the limit is {MOST_VALUES:,}",
            hint="Every worker holds all of them: set hash_buckets.",
        )


@dataclass(frozen=True)
class Encoding(FittedByColumn):
    """Base of operators that replace each value by a number that was fitted for it.

    Attributes:
        tables: The fitted tables, by column.
    """

    FITTED_FIELD: ClassVar[str] = "tables"
    takes: ClassVar[Takes] = "categories"
    tables: Mapping[str, ValueTable] = field(default_factory=dict, compare=False, kw_only=True)

    @property
    def num_folds(self) -> int:
        """The number of folds into which training rows are divided."""
        raise NotImplementedError

    def merge(self, *states: Cells) -> Cells:
        """Return the cells (counts by value and fold) of all states, one state after another.

        Equal cells are not added up.
        """
        return states[0] if len(states) == 1 else Cells.joined([state.rows for state in states])

    def finish(self, state: Cells) -> ValueTable:
        """Return the fitted table; raises a `DataError` if it has too many values."""
        table = ValueTable.of_cells(state, self.num_folds)
        check_number(len(table.values))
        return table

    def save_tables(self, folder: str) -> None:
        """Write the fitted tables to a folder."""
        for name, table in self.tables.items():
            table.save(folder, name)

    def served(self, column: str) -> dict[str, Any]:
        return {"vocabulary": column}

    def numbers(self, table: ValueTable) -> Floats:
        """Return the number of each value in an opened table, float64 `[values + 1]`.

        The last one is for unseen values.
        """
        raise NotImplementedError

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the number of each value, float64; unseen values get that of `numbers`."""
        table = self.tables[column].opened()
        return pa.array(self.numbers(table)[table.places_of(values)])

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and the checksum of each fitted table."""
        return {"tables": {column: table.checksum for column, table in self.tables.items()}}


@dataclass(frozen=True)
class CountEncode(Encoding):
    """Replaces each value by the number of training rows with that value. Null counts as a value.

    An unseen value gets the smallest count of any value (`least_count`) instead of 0. No training
    row has the count 0, so a model would have to extrapolate, far if each value has many rows.
    """

    kind: ClassVar[str] = "CountEncode"
    key: ClassVar = DocumentKey(
        "count",
        bool,
        "Whether the number is the count of training rows with the value, which is a category.",
        lambda _: CountEncode(),
        default=False,
        mistake_in=alone_mistake("count", "missing_flag", "target_mean", "fill"),
    )

    @property
    def num_folds(self) -> int:
        return 1

    def fit(self, values: pa.Array) -> Cells:
        return Cells.of(values, np.zeros(len(values), np.int64), np.zeros(len(values)))

    def numbers(self, table: ValueTable) -> Floats:
        def at_least(counts: Ints, _: Floats) -> Floats:
            return np.maximum(counts[:, 0], table.least_count).astype(np.float64)

        return table.once("counts", at_least)


class TargetMeanSpec(Section):
    """The mean of the target over training rows with the same value."""

    smoothing: Real = Field(
        20.0,
        gt=0,
        description="The weight, in rows, of the mean of all rows, which is averaged with the "
        "mean of each value's rows.",
    )


@dataclass(frozen=True)
class TargetEncode(Encoding):
    """Replaces each value by the mean label of training rows with that value, smoothed.

    It is (sum + smoothing * mean of all rows) / (count + smoothing), as in D. Micci-Barreca, "A
    preprocessing scheme for high-cardinality categorical attributes" (2001). Null counts as a
    value.

    Training rows are divided into folds, and a row's number is computed from the other folds, so
    that its own label is neither in its value's sum nor in the mean of all rows. With `by_time` the
    folds are blocks of time, and a row's number is computed from earlier blocks. For rows other
    than training rows, it is computed from all training rows.

    Attributes:
        by_time: Whether the folds are blocks of time.
        edges: The times at which blocks begin, except the first block; from `with_blocks`.
        rows: The folds or times, and labels, of the training rows whose values are fitted or
            transformed; `None` for other rows.
    """

    kind: ClassVar[str] = "TargetEncode"
    key: ClassVar = DocumentKey(
        "target_mean",
        TargetMeanSpec,
        "The number is the mean of the target over training rows with the same value, a category.",
        lambda spec: TargetEncode(spec.smoothing),
        mistake_in=alone_mistake("target_mean", "missing_flag", "fill"),
    )
    smoothing: float = 20.0
    by_time: bool = False
    edges: tuple[float, ...] = ()
    rows: TrainingRows | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self.edges))
        if not self.smoothing > 0:
            raise InputError(f"TargetEncode's smoothing is {self.smoothing}, not above 0")

    def of_rows(self, rows: TrainingRows) -> TargetEncode:
        return replace(self, rows=rows)

    def with_blocks(self, times: Floats) -> TargetEncode:
        """Return the operator with the edges of blocks, from a sample of training times.

        An operator that is not `by_time` is returned unchanged, as is any for an empty sample.
        """
        if not self.by_time or not len(times):
            return self
        edges = np.unique(np.quantile(times, BLOCKS, method="inverted_cdf"))
        return replace(self, edges=tuple(map(float, edges)))

    @property
    def num_folds(self) -> int:
        return len(self.edges) + 1 if self.by_time else NUM_FOLDS

    def fit(self, values: pa.Array) -> Cells:
        """Return the number of rows and the sum of labels, by value and fold.

        Raises a `DataError` if `of_rows` has not provided labels.
        """
        if self.rows is None or self.rows.labels is None:
            raise DataError(
                "target means need labelled training rows",
                hint="Fit on tables with a column `label` and one of `fold_numbers`.",
            )
        return Cells.of(values, self._folds(self.rows), self.rows.labels)

    def _folds(self, rows: TrainingRows) -> Ints:
        if not self.by_time:
            return rows.places.astype(np.int64)
        return np.searchsorted(np.array(self.edges), rows.places, side="right")

    def numbers(self, table: ValueTable) -> Floats:
        rows, total = (one.sum() for one in table.totals)

        def of_all(counts: Ints, sums: Floats) -> Floats:
            return self._smoothed(counts.sum(1), sums.sum(1), rows, total)

        return table.once(("all", self.smoothing), of_all)

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return each value's target mean, float64.

        For training rows (`of_rows`), the mean leaves out the row's own fold or, with `by_time`,
        the blocks that do not come before the row's block.
        """
        if self.rows is None:
            return super().transform(column, values)
        table = self.tables[column].opened()
        others = _before if self.by_time else _without
        rows, total = (others(one) for one in table.totals)

        def of_folds(counts: Ints, sums: Floats) -> Floats:
            return self._smoothed(others(counts), others(sums), rows, total)

        means = table.once((self.by_time, self.smoothing), of_folds)
        return pa.array(means[table.places_of(values), self._folds(self.rows)])

    def _smoothed(self, counts: Any, sums: Any, rows: Any, total: Any) -> Floats:
        """Return (sums + smoothing * m) / (counts + smoothing).

        m is the mean label of all rows: the sum of all labels `total`, divided by the number
        `rows`; 0 without rows.
        """
        prior = np.where(rows > 0, total / np.maximum(rows, 1), 0.0)
        smoothed: Floats = (sums + self.smoothing * prior) / (counts + self.smoothing)
        return smoothed

    def to_json(self) -> dict[str, Any]:
        return {
            "smoothing": self.smoothing,
            "by_time": self.by_time,
            "edges": list(self.edges),
            **super().to_json(),
        }


def _before(of_blocks: Any) -> Any:
    """Return for each block the sum over all earlier blocks; both are `[values, blocks]`."""
    return np.cumsum(np.pad(of_blocks[:, :-1], ((0, 0), (1, 0))), axis=1)


def _without(of_folds: Any) -> Any:
    """Return for each fold the sum over all other folds; both are `[values, folds]`.

    Subtracting the fold from the total would add a rounding error.
    """
    num_folds = of_folds.shape[1]
    return np.stack([np.delete(of_folds, n, axis=1).sum(1) for n in range(num_folds)], axis=1)
