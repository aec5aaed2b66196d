"""Operators that give a category a number: how often it was seen, or the mean of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from distrain.errors import DataError, InputError
from distrain.jobs.spec.fields import Real, Section
from distrain.prep.operators.categorify import as_categories
from distrain.prep.operators.counts import text_hashes
from distrain.prep.operators.numbers import alone_mistake
from distrain.prep.operators.operator import (
    DocumentKey,
    LearntByColumn,
    Takes,
    TrainingRows,
    concrete,
)
from distrain.prep.vocabulary import is_text, read_table, readable, stable_buckets, write_table

NUM_FOLDS = 8
MOST_VALUES = 1 << 23
BLOCKS = (1 / 512, 1 / 128, 1 / 32, *np.arange(1, 16) / 16)
"""The shares of training rows, by their time, after which a block of them begins; short ones first,
for rows of the first block have no mean but 0."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class ValueTable:
    """How often each value was seen, and the sum of its labels, in each fold of the training rows.

    Attributes:
        values: The distinct values, int64 or large_string; a gap is one of them.
        counts, sums: `[values, folds]`.
        saved: Folder and name of the file that it was written to, by which it travels to workers.
    """

    values: pa.Array
    counts: Ints
    sums: Floats
    saved: tuple[str, str] | None = None

    @classmethod
    def of(cls, values: pa.Array, num_folds: int, folds: Ints, labels: Floats) -> ValueTable:
        found = _wide(as_categories(values)).dictionary_encode(null_encoding="encode")
        size = len(found.dictionary) * num_folds
        cells = found.indices.to_numpy() * np.int64(num_folds) + folds
        counts = np.bincount(cells, minlength=size).reshape(-1, num_folds)
        sums = np.bincount(cells, labels, minlength=size).reshape(-1, num_folds)
        return cls(found.dictionary, counts, sums.astype(np.float64))

    @classmethod
    def merged(cls, tables: Sequence[ValueTable]) -> ValueTable:
        """The sums of all; they are added in the order of the tables."""
        some = [t.values.type for t in tables if len(t.values) > t.values.null_count]
        arrays = [table.values.cast(some[0]) if some else table.values for table in tables]
        found = pa.concat_arrays(arrays).dictionary_encode(null_encoding="encode")
        places = found.indices.to_numpy()
        counts = np.zeros((len(found.dictionary), tables[0].counts.shape[1]), np.int64)
        sums = np.zeros(counts.shape)
        begin = 0
        for table in tables:
            here = places[begin : begin + len(table.values)]
            counts[here] += table.counts
            sums[here] += table.sums
            begin += len(table.values)
        return cls(found.dictionary, counts, sums)

    def places_of(self, values: pa.Array) -> Ints:
        """The place of each value, `[values]`; -1 of one that was not seen."""
        values = as_categories(values)
        if values.null_count == len(values):
            values = pa.nulls(len(values), self.values.type)
        if len(self.values) > self.values.null_count and _wide(values).type != self.values.type:
            raise DataError(
                f"the column holds {values.type}, but its saved values are {self.values.type}",
                hint="Use the workflow that was fitted on files of this kind.",
            )
        found = _wide(values).dictionary_encode(null_encoding="encode")
        places = pc.index_in(found.dictionary, value_set=self.values.cast(found.dictionary.type))
        known: Ints = places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        of_rows: Ints = known[found.indices.to_numpy()]
        return of_rows

    @property
    def checksum(self) -> str:
        is_gap = self.values.is_null().to_numpy(zero_copy_only=False)
        if is_text(self.values.type):
            hashes = text_hashes(self.values.fill_null(""))
        else:
            hashes = self.values.fill_null(0).to_numpy(zero_copy_only=False)
        hashed = xxhash.xxh3_64()
        for one in (is_gap, hashes, self.counts, self.sums):
            hashed.update(np.ascontiguousarray(one).data)
        return str(hashed.hexdigest())

    def save(self, folder: str | Path, name: str) -> ValueTable:
        """Write `encoded.NAME.parquet`; the table that knows its file."""
        lists = (
            pa.FixedSizeListArray.from_arrays(pa.array(one.reshape(-1)), one.shape[1])
            for one in (self.counts, self.sums)
        )
        table = pa.table([self.values, *lists], names=["value", "counts", "sums"])
        write_table(table, _file(folder, name), compression="zstd")
        return replace(self, saved=(str(folder), name))

    @classmethod
    def load(cls, folder: str | Path, name: str) -> ValueTable:
        file = _file(folder, name)
        with readable(file):
            read = read_table(file).combine_chunks()
            values, *lists = (concrete(read[column]) for column in ("value", "counts", "sums"))
            counts, sums = (x.flatten().to_numpy().reshape(-1, x.type.list_size) for x in lists)
        return cls(_wide(values), counts, sums)

    def __reduce__(self) -> Any:
        if self.saved is None:
            return ValueTable, (self.values, self.counts, self.sums)
        return saved_table, self.saved


def _file(folder: str | Path, name: str) -> str:
    return f"{folder}/encoded.{name}.parquet"


@lru_cache(maxsize=64)
def saved_table(folder: str, name: str) -> ValueTable:
    """A table of a run, whose folder no other run has, read once by each process."""
    return ValueTable.load(folder, name)


def _wide(values: pa.Array) -> pa.Array:
    return values if pa.types.is_integer(values.type) else values.cast(pa.large_string())


def fold_numbers(num_rows: int, name: str = "") -> Ints:
    """Numbers by which training rows are cut into folds, `[rows]`, the same wherever it is asked.

    Args:
        name: What tells these rows from those of other files.
    """
    (seed,) = stable_buckets(pa.array([name]), 1 << 31).tolist()
    return stable_buckets(pa.array(np.arange(num_rows) + (seed << 32)), NUM_FOLDS).astype(np.int64)


@dataclass(frozen=True)
class _Encoding(LearntByColumn):
    """An operator that learns a number of each value.

    Attributes:
        tables: What was learnt, by column.
    """

    LEARNT: ClassVar[str] = "tables"
    takes: ClassVar[Takes] = "categories"
    tables: Mapping[str, ValueTable] = field(default_factory=dict, compare=False, kw_only=True)

    def merge(self, *states: ValueTable) -> ValueTable:
        return states[0] if len(states) == 1 else ValueTable.merged(states)

    def finish(self, state: ValueTable) -> ValueTable:
        if len(state.values) > MOST_VALUES:
            raise DataError(
                f"{len(state.values):,} different values, and {MOST_VALUES:,} are the most",
                hint="Workers hold them all: set hash_buckets.",
            )
        return state

    def with_saved_tables(self, folder: str) -> Self:
        """Write the tables that are not there, so that they travel by name."""
        tables = self.tables.items()
        here = {n: t if t.saved == (folder, n) else t.save(folder, n) for n, t in tables}
        return replace(self, tables=here)

    def served(self, column: str) -> dict[str, Any]:
        return {"vocabulary": column}

    def numbers(self, column: str) -> Floats:
        """The number of each value of the column's table, and of one that it does not have."""
        raise NotImplementedError

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        return pa.array(self.numbers(column)[self.tables[column].places_of(values)])

    def to_json(self) -> dict[str, Any]:
        return {"tables": {column: table.checksum for column, table in self.tables.items()}}


@dataclass(frozen=True)
class CountEncode(_Encoding):
    """How often a value was seen in the training rows; 0 if never. A gap is a value, too."""

    kind: ClassVar[str] = "CountEncode"
    key: ClassVar = DocumentKey(
        "count",
        bool,
        "Whether the number is how often training rows have the value, which is a category.",
        lambda _: CountEncode(),
        default=False,
        mistake_in=alone_mistake("count", "missing_flag", "target_mean", "fill"),
    )

    def fit(self, values: pa.Array) -> ValueTable:
        return ValueTable.of(values, 1, np.zeros(len(values), np.int64), np.zeros(len(values)))

    def numbers(self, column: str) -> Floats:
        counts: Floats = _with_unknown(self.tables[column].counts)[:, 0].astype(np.float64)
        return counts


class TargetMeanSpec(Section):
    """The mean of the target over training rows of the same value."""

    smoothing: Real = Field(
        20.0, gt=0, description="Of so many rows with the mean of all the mean is made, too."
    )


@dataclass(frozen=True)
class TargetEncode(_Encoding):
    """The mean of the labels of training rows with the same value, smoothed by that of all rows.

    (sum + smoothing * mean of all) / (count + smoothing), as D. Micci-Barreca, "A preprocessing
    scheme for high-cardinality categorical attributes" (2001). A gap is a value, too.

    Training rows are cut into folds, and a row gets what the rows of other folds say: its own label
    enters neither sum nor mean. With `by_time` the folds are blocks of time, and a row gets what
    earlier blocks say. Later rows get what all training rows say.

    Attributes:
        by_time: Whether training rows come with their times.
        edges: The times at which blocks begin, but the first; set before a fit.
        rows: The training rows that `fit` and `transform` get the values of; `None` of later rows.
    """

    kind: ClassVar[str] = "TargetEncode"
    key: ClassVar = DocumentKey(
        "target_mean",
        TargetMeanSpec,
        "The number is the target's mean over training rows of the same value, a category.",
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
        """With the edges of blocks; `times` are some of the training rows'."""
        if not self.by_time or not len(times):
            return self
        edges = np.unique(np.quantile(times, BLOCKS, method="inverted_cdf"))
        return replace(self, edges=tuple(map(float, edges)))

    def fit(self, values: pa.Array) -> ValueTable:
        if self.rows is None or self.rows.labels is None:
            raise DataError(
                "target means are learnt from labelled training rows",
                hint="Fit on tables with a column `label` and one of `fold_numbers`.",
            )
        num_folds = len(self.edges) + 1 if self.by_time else NUM_FOLDS
        return ValueTable.of(values, num_folds, self._folds(self.rows), self.rows.labels)

    def _folds(self, rows: TrainingRows) -> Ints:
        if not self.by_time:
            return rows.places.astype(np.int64)
        return np.searchsorted(np.array(self.edges), rows.places, side="right")

    def numbers(self, column: str) -> Floats:
        table = self.tables[column]
        counts, sums = (_with_unknown(x).sum(1) for x in (table.counts, table.sums))
        return self._smoothed(counts, sums, counts.sum(), sums.sum())

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        if self.rows is None:
            return super().transform(column, values)
        table, folds = self.tables[column], self._folds(self.rows)
        places = table.places_of(values)
        others = _before if self.by_time else _without
        counts, sums = _with_unknown(table.counts), _with_unknown(table.sums)
        at = places
        if len(places) < len(counts):  # of a large table, the rows that are read
            counts, sums, at = counts[places], sums[places], np.arange(len(places))
        cells = (others(x)[at, folds] for x in (counts, sums))
        of_all = (others(x.sum(0, keepdims=True))[0, folds] for x in (table.counts, table.sums))
        return pa.array(self._smoothed(*cells, *of_all))

    def _smoothed(self, counts: Any, sums: Any, rows: Any, total: Any) -> Floats:
        prior = np.where(rows > 0, total / np.maximum(rows, 1), 0.0)
        found: Floats = (sums + self.smoothing * prior) / (counts + self.smoothing)
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "smoothing": self.smoothing,
            "by_time": self.by_time,
            "edges": list(self.edges),
            **super().to_json(),
        }


def _with_unknown(of_values: Any) -> Any:
    """With a row of zeros at the end, where the place -1 leads."""
    return np.pad(of_values, ((0, 1), (0, 0)))


def _before(of_blocks: Any) -> Any:
    """The sums over the blocks before each, `[values, folds]`."""
    return np.cumsum(np.pad(of_blocks[:, :-1], ((0, 0), (1, 0))), axis=1)


def _without(of_folds: Any) -> Any:
    """The sums over the other folds of each, in which its own has no part, rounding included."""
    num_folds = of_folds.shape[1]
    return np.stack([np.delete(of_folds, n, axis=1).sum(1) for n in range(num_folds)], axis=1)
