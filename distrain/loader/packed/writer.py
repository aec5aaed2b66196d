"""Packed files, written row group by row group, then read back."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from distrain.errors import DataError, OutputError
from distrain.loader.packed.mark import MARK_KEY, GroupMark, Mark, checksum
from distrain.loader.packed.raw_file import Buffers
from distrain.loader.packed.reader import PackedFile
from distrain.loader.partition.wanted_columns import WantedColumn

MOST_GROUP_ROWS = 1 << 28
MOST_GROUP_ITEMS = 1 << 27  # of a list column, whose levels lie in the same page

_PAGE_BYTES = 4 * MOST_GROUP_ROWS + 1  # parquet's own bound is 2 GiB
# Newer versions of Arrow bound a page's rows as well, by default at 20,000.
_ONE_PAGE = (
    {"max_rows_per_page": MOST_GROUP_ROWS}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters
    else {}
)


Column: TypeAlias = "NDArray[Any] | pa.ListArray"
"""A row group's column: `[rows]`, or as many lists."""


def kept_as(column: WantedColumn, values: Column) -> Column:
    """Values that can be used, as int32 ids or float32 numbers, or lists of these."""
    if isinstance(values, pa.ListArray):
        return values.cast(pa.list_(_value_type(column)), safe=False)
    dtype = np.int32 if column.kind == "id" else np.float32
    cells: NDArray[Any] = values.astype(dtype, copy=False)
    return cells


class PackedWriter(AbstractContextManager["PackedWriter"]):
    """Writes one packed file; a context manager, and the caller makes the file appear whole.

    Column statistics and parquet's checksum of each page are for other readers.
    """

    def __init__(self, path: Path, columns: Sequence[WantedColumn], source: str):
        self._source = source
        self._groups: list[GroupMark] = []
        self._schema = pa.schema(
            pa.field(column.name, _arrow_type(column), nullable=False) for column in columns
        )
        self._lists = tuple(column.name for column in columns if column.is_list)
        self._sink = _Tee(path)
        self._file = pa.PythonFile(self._sink, mode="w")
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression="none",
                use_dictionary=False,
                data_page_size=_PAGE_BYTES,
                write_statistics=True,
                write_page_checksum=True,
                **_ONE_PAGE,
            )
        except BaseException:
            self._sink.close()
            raise

    def write(self, columns: Sequence[Column]) -> None:
        """Write a row group of 1 to 2^28 rows: int32 ids, float32, or lists of these.

        Raises:
            OutputError: A list column has more than 2^27 items.
        """
        start = self._sink.restart()
        lists = [column for column in columns if isinstance(column, pa.ListArray)]
        lengths = [rows.value_lengths().to_numpy() for rows in lists]
        values = [np.ascontiguousarray(_values_of(column)) for column in columns]
        items = tuple(len(column) for column in values[len(columns) - len(lists) :])
        self._check_items(items)
        for rows in lengths:
            self._file.write(rows.data)  # by way of Arrow, which counts what is written
        arrays = [
            pa.array(column) if isinstance(column, np.ndarray) else _required(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        length, all_checksum = self._sink.length, self._sink.checksum()
        sums = tuple(checksum(part.data) for part in (*values, *lengths))
        self._groups.append(GroupMark(start, length, table.num_rows, all_checksum, sums, items))

    def _check_items(self, items: Sequence[int]) -> None:
        for name, count in zip(self._lists, items, strict=True):
            if count > MOST_GROUP_ITEMS:
                raise OutputError(
                    f"the lists of column {name!r} in a row group have {count} items, which is "
                    f"more than {MOST_GROUP_ITEMS}",
                    hint="Write smaller row groups (--row-group-rows).",
                )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                groups = tuple(self._groups)
                mark = Mark(tuple(self._schema.names), self._source, groups, self._lists)
                self._writer.add_key_value_metadata({MARK_KEY: mark.to_json()})
            self._writer.close()
        finally:
            self._sink.close()


def certify(path: Path, columns: Sequence[WantedColumn]) -> None:
    """Read a written file as a loader will, and compare checksums with those of the writer."""
    try:
        PackedFile(str(path)).certify(columns, Buffers())
    except DataError as error:
        raise OutputError(
            f"what was written is not what is read back: {error.message}",
            where=error.where,
            hint="Either the disk fails, or this version of pyarrow lays pages out otherwise.",
        ) from error


def _value_type(column: WantedColumn) -> pa.DataType:
    return pa.int32() if column.kind == "id" else pa.float32()


def _arrow_type(column: WantedColumn) -> pa.DataType:
    kind = _value_type(column)
    return pa.list_(pa.field("element", kind, nullable=False)) if column.is_list else kind


def _values_of(column: Column) -> NDArray[Any]:
    values: NDArray[Any] = (
        column.flatten().to_numpy() if isinstance(column, pa.ListArray) else column
    )
    return values


def _required(rows: pa.ListArray, kind: pa.DataType) -> pa.ListArray:
    offsets = rows.offsets.to_numpy()
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), rows.flatten(), type=kind)


class _Tee:
    """A file with a checksum of what is written to it; it has the methods that Arrow calls."""

    def __init__(self, path: Path):
        self._handle = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by its owner
        self._position = 0
        self._start = 0
        self._hash = xxhash.xxh3_64()

    closed = False

    @property
    def length(self) -> int:
        return self._position - self._start

    def restart(self) -> int:
        self._start = self._position
        self._hash.reset()
        return self._start

    def checksum(self) -> int:
        return self._hash.intdigest()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._hash.update(view)
        done = 0
        while done < len(view):
            done += os.write(self._handle.fileno(), view[done:])
        self._position += done
        return done

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass  # nothing is held back

    def close(self) -> None:
        self._handle.close()
        self.closed = True
