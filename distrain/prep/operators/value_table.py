"""Counts of each value of a column, and sums of its labels, by folds of training rows.

A cell is a pair of a value and a fold. The fit counts cells, and adds the counts up piece by piece;
a piece is a range of buckets of the values' hashes. Sums are added in the order of the rows' parts,
which does not depend on the workers that counted them, so the same rows give the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from distrain.errors import DataError
from distrain.prep.mapped_files import MappedFile
from distrain.prep.operators.categorify import as_categories
from distrain.prep.operators.counts import buckets_of, text_hashes
from distrain.prep.operators.key_index import KeyIndex
from distrain.prep.operators.operator import concrete
from distrain.prep.parts import readable_parquet
from distrain.prep.vocabulary import (
    RowGroupWriter,
    copy_file,
    is_text,
    one_array,
)

_ROW_GROUP_VALUES = 1 << 16
_MADE_AT_ONCE = 1 << 18
_MAKING = threading.Lock()

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of some training rows, and sums of their labels, by value and fold.

    Attributes:
        rows: Columns `value` (int64 or large_string; null is a value), `fold`, `count`, and `sum`
            of the labels. Several rows may have the same value and fold.
    """

    rows: pa.Table
    nulls: ClassVar[int] = 0

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    @classmethod
    def of(cls, values: pa.Array, folds: Ints, labels: Floats) -> Cells:
        """Return the number of rows and the sum of labels of each pair of value and fold.

        Only pairs that occur are in the result. All arguments are `[rows]`; null is a value.
        """
        encoded = _wide(as_categories(values)).dictionary_encode(null_encoding="encode")
        num_folds = int(folds.max(initial=0)) + 1
        cells = encoded.indices.to_numpy() * np.int64(num_folds) + folds
        counts = np.bincount(cells, minlength=1)
        sums = np.bincount(cells, labels, minlength=1)
        seen = np.flatnonzero(counts)
        columns = {
            "value": encoded.dictionary.take(pa.array(seen // num_folds)),
            "fold": seen % num_folds,
            "count": counts[seen],
            "sum": sums[seen].astype(np.float64),
        }
        return cls(pa.table(columns))

    @classmethod
    def joined(cls, cells: Sequence[pa.Table]) -> Cells:
        """Return the cells of all tables, in the order of the tables."""
        wanted = _value_type(cells)
        return cls(pa.concat_tables(_with_values_of(wanted, some) for some in cells))


@dataclass(frozen=True, eq=False)
class ValueTable:
    """Counts of rows and sums of labels, by value and fold.

    Attributes:
        values: The distinct values, int64 or large_string, ordered by hash bucket and then by
            value; null is a value. An earlier version wrote values in another order.
        counts, sums: `[values, folds]`.
    """

    values: pa.Array
    counts: Ints
    sums: Floats
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_cells(cls, cells: Cells, num_folds: int) -> ValueTable:
        """Return the sums of counts and labels for each value and fold, added in row order.

        The values are sorted by bucket, and within a bucket by value.
        """
        columns = {name: one_array(cells.rows[name]) for name in ("value", "fold", "count", "sum")}
        encoded = columns["value"].dictionary_encode(null_encoding="encode")
        at = encoded.indices.to_numpy() * np.int64(num_folds) + columns["fold"].to_numpy()
        size = len(encoded.dictionary) * num_folds
        counts, sums = (
            np.bincount(at, columns[name].to_numpy(), minlength=size).reshape(-1, num_folds)
            for name in ("count", "sum")
        )
        by = pa.table({"bucket": buckets_of(encoded.dictionary), "value": encoded.dictionary})
        order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
        places = order.to_numpy()
        values = encoded.dictionary.take(order)
        return cls(values, counts[places].astype(np.int64), sums[places].astype(np.float64))

    def _index(self) -> tuple[KeyIndex, Ints, int]:
        """Return an index of the non-null values, their indices in `values`, and the index of null.

        The index of null is -1 if null is not among the values.
        """
        gaps = self.values.is_null().to_numpy(zero_copy_only=False)
        gap = int(np.argmax(gaps)) if gaps.any() else -1
        return KeyIndex.of(self.values.drop_null()), np.flatnonzero(~gaps), gap

    def places_of(self, values: pa.Array) -> Ints:
        """Return the index of each value in the table, `[values]`; -1 for an unseen value.

        Raises a `DataError` if the values have another type than the table's.
        """
        values = as_categories(values)
        if values.null_count == len(values):
            values = pa.nulls(len(values), self.values.type)
        if len(self.values) > self.values.null_count and _wide(values).type != self.values.type:
            raise DataError(
                f"the column has type {values.type}, but its saved values have "
                f"type {self.values.type}",
                hint="Use the workflow that was fitted on files of this kind.",
            )
        encoded = _wide(values).dictionary_encode()
        index, known, gap = self._made_once("index", self._index)
        is_known, at = index.places_of(encoded.dictionary)
        of_distinct = np.full(len(at) + 1, gap)
        of_distinct[:-1] = -1
        of_distinct[:-1][is_known] = known[at[is_known]]
        of_rows: Ints = of_distinct[
            encoded.indices.fill_null(len(at)).to_numpy(zero_copy_only=False)
        ]
        return of_rows

    def once(self, key: Any, make: Callable[[Ints, Floats], Floats]) -> Floats:
        """Return `make(counts, sums)`, float64 `[values + 1, ...]`.

        It is computed once for each key, and then cached. `make` is called for ranges of the
        values, and for a row of zeros. The result for zeros is appended, so that index -1 gives the
        result for an unseen value. The array is shared, so it must not be changed.
        """

        def made() -> Floats:
            unseen = np.zeros((1, self.counts.shape[1]))
            pieces = [
                make(self.counts[first:][:_MADE_AT_ONCE], self.sums[first:][:_MADE_AT_ONCE])
                for first in range(0, len(self.values), _MADE_AT_ONCE)
            ]
            return np.concatenate([*pieces, make(unseen.astype(np.int64), unseen)])

        numbers: Floats = self._made_once(("numbers", key), made)
        return numbers

    def _made_once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, computed only once for each key, even if several threads ask for it."""
        if key not in self._made:
            with _MAKING:
                if key not in self._made:
                    self._made[key] = make()
        return self._made[key]

    def opened(self) -> ValueTable:
        """Return the table with its values in memory."""
        return self

    @property
    def held_bytes(self) -> int:
        """The memory of the table, its index, and the numbers made from it."""
        return int(2 * self.values.nbytes + 12 * len(self.values) + 4 * self.counts.nbytes)

    @cached_property
    def least_count(self) -> int:
        """The smallest count of rows of any value and fold of the table; 0 for an empty table."""
        return int(self.counts.min()) if len(self.values) else 0

    @cached_property
    def totals(self) -> tuple[Ints, Floats]:
        """The sums of `counts` and `sums` over all values, `[1, folds]`."""
        return self.counts.sum(0, keepdims=True), self.sums.sum(0, keepdims=True)

    @property
    def rows(self) -> pa.Table:
        lists = (
            pa.FixedSizeListArray.from_arrays(pa.array(one.reshape(-1)), one.shape[1])
            for one in (self.counts, self.sums)
        )
        return pa.table([self.values, *lists], names=["value", "counts", "sums"])

    @property
    def checksum(self) -> str:
        """A hash of the table's content."""
        hashed = _Checksum()
        hashed.add(self.rows)
        return hashed.hexdigest()

    def save(self, folder: str | Path, name: str) -> None:
        """Write `encoded.NAME.parquet`."""
        SavedTable.write(str(folder), name, [self.rows])

    @classmethod
    def load(cls, folder: str | Path, name: str) -> ValueTable:
        """Read `encoded.NAME.parquet`; raises a `DataError` if it cannot be read."""
        file = _file(folder, name)
        with readable_parquet(file) as parquet:
            read = parquet.read().combine_chunks()
            values, counts, sums = (concrete(read[name]) for name in ("value", "counts", "sums"))
            return cls(_wide(values), _matrix(counts), _matrix(sums))


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedTable(ValueTable):
    """A table that stays in its file; `values`, `counts` and `sums` are empty.

    Attributes:
        most_bytes: Maximum memory of the opened tables that a process keeps.
    """

    folder: str
    name: str
    known_checksum: str = ""
    most_bytes: int = 0

    @classmethod
    def at(cls, folder: str, name: str, **settings: Any) -> SavedTable:
        """Return the table `name` of a folder without reading it.

        `settings` are further fields of the `SavedTable`, such as `most_bytes`.
        """
        none = np.zeros((0, 1))
        empty = (pa.array([], pa.int64()), none.astype(np.int64), none)
        return cls(*empty, folder=folder, name=name, **settings)

    def opened(self) -> ValueTable:
        """Return the table, which is read from its file unless it is in memory.

        The tables that fit into `most_bytes` are kept. Any other table is in memory only while
        callers use it. Keeping the most recently used tables instead would read every table again
        for each part, since all parts use the tables in the same order. A table larger than
        `most_bytes` is kept until another is read, if no other table is kept.
        """
        at = (self.folder, self.name)
        with _OPENING:
            reading = _READING.setdefault(at, threading.Lock())
        with reading:
            table = _OPENED.get(at)
            if table is None:
                self._make_room()
                table = _OPENED[at] = ValueTable.load(self.folder, self.name)
                self._keep(table)
            return table

    def _make_room(self) -> None:
        with _OPENING:
            if _kept_bytes() > self.most_bytes:
                _KEPT.clear()

    def _keep(self, table: ValueTable) -> None:
        with _OPENING:
            if _kept_bytes() + table.held_bytes > self.most_bytes:
                for other in [at for at in _KEPT if at[0] != self.folder]:
                    del _KEPT[other]  # of another preparation, which may have ended
            if not _KEPT or _kept_bytes() + table.held_bytes <= self.most_bytes:
                _KEPT[self.folder, self.name] = table

    @classmethod
    def look_at(cls, folder: str, name: str) -> SavedTable:
        hashed = _Checksum()
        file = _file(folder, name)
        with readable_parquet(file) as parquet:
            for batch in parquet.iter_batches(_ROW_GROUP_VALUES, use_threads=False):
                hashed.add(pa.table(batch))
        return cls.at(folder, name, known_checksum=hashed.hexdigest())

    @classmethod
    def write(
        cls, folder: str, name: str, pieces: Sequence[pa.Table], files: Sequence[MappedFile] = ()
    ) -> SavedTable:
        """Write the rows of all pieces to `encoded.NAME.parquet`, one piece after another.

        `files` are the mapped files of the pieces; their pages are released after each piece.
        """
        hashed = _Checksum()
        wanted = _value_type(pieces)
        schema = _with_values_of(wanted, pieces[0]).schema
        with RowGroupWriter.open(_file(folder, name), schema, _ROW_GROUP_VALUES) as to:
            for piece in pieces:
                rows = _with_values_of(wanted, piece)
                to.write(rows)
                hashed.add(rows)
                for file in files:
                    file.forget()
        return cls.at(folder, name, known_checksum=hashed.hexdigest())

    @property
    def checksum(self) -> str:
        return self.known_checksum

    def save(self, folder: str | Path, name: str) -> None:
        """Copy the table's file to another folder or URL, unless it is there already."""
        if (str(folder), name) != (self.folder, self.name):
            copy_file(_file(self.folder, self.name), _file(folder, name))


_OPENING = threading.Lock()
_READING: dict[tuple[str, str], threading.Lock] = {}
_OPENED: WeakValueDictionary[tuple[str, str], ValueTable] = WeakValueDictionary()
_KEPT: dict[tuple[str, str], ValueTable] = {}
"""The opened tables that stay in memory, by folder and name.

Each preparation has a folder of its own.
"""


def _kept_bytes() -> int:
    return sum(table.held_bytes for table in _KEPT.values())


def forget_tables() -> None:
    """Empty this process's cache of tables, at the end of a preparation.

    Worker processes outlive it.
    """
    with _OPENING:
        _KEPT.clear()
        _OPENED.clear()
        _READING.clear()


def _file(folder: str | Path, name: str) -> str:
    return f"{folder}/encoded.{name}.parquet"


def _value_type(tables: Sequence[pa.Table]) -> pa.DataType:
    """Return the type of the first table that has non-null values.

    If all values are null, it is the first string type or, without one, the first table's type.
    """
    types = [table.schema.field("value").type for table in tables]
    known = [
        dtype
        for dtype, table in zip(types, tables, strict=True)
        if table["value"].null_count < table.num_rows
    ]
    return (known or [dtype for dtype in types if is_text(dtype)] or types)[0]


def _with_values_of(dtype: pa.DataType, table: pa.Table) -> pa.Table:
    return table.set_column(0, "value", table["value"].cast(dtype))


class _Checksum:
    """The checksum of a table, independent of how its rows are divided into pieces."""

    def __init__(self) -> None:
        self._hashed = [xxhash.xxh3_64() for _ in range(4)]

    def add(self, rows: pa.Table) -> None:
        values, counts, sums = (concrete(rows[name]) for name in ("value", "counts", "sums"))
        if is_text(values.type):
            keys = text_hashes(values.fill_null(""))
        else:
            keys = values.fill_null(0).to_numpy(zero_copy_only=False)
        is_gap = values.is_null().to_numpy(zero_copy_only=False)
        arrays = (is_gap, keys, _matrix(counts), _matrix(sums))
        for hashed, array in zip(self._hashed, arrays, strict=True):
            hashed.update(np.ascontiguousarray(array).data)

    def hexdigest(self) -> str:
        return str(xxhash.xxh3_64_hexdigest(b"".join(one.digest() for one in self._hashed)))


def _matrix(lists: pa.Array) -> Any:
    return lists.flatten().to_numpy().reshape(-1, lists.type.list_size)


def _wide(values: pa.Array) -> pa.Array:
    return values if pa.types.is_integer(values.type) else values.cast(pa.large_string())
