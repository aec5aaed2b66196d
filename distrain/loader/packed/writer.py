"""Packed files, written row group by row group, then read back."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from distrain.errors import DataError, OutputError
from distrain.loader.packed.layout import MARK_KEY, GroupMark, Mark, checksum
from distrain.loader.packed.packed_file import PackedFile
from distrain.partition import WantedColumn

MOST_GROUP_ROWS = 1 << 28

_PAGE_BYTES = 4 * MOST_GROUP_ROWS + 1  # parquet's own bound is 2 GiB
# Newer versions of Arrow bound a page's rows as well, by default at 20,000.
_ONE_PAGE = (
    {"max_rows_per_page": MOST_GROUP_ROWS}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters
    else {}
)


def cells_of(column: WantedColumn, values: NDArray[Any]) -> NDArray[Any]:
    """Values that can be used as int32 ids or float32 numbers, `[rows]`."""
    return values.astype(np.int32 if column.kind == "id" else np.float32, copy=False)


class PackedWriter:
    """Writes one packed file; a context manager, and the caller makes the file appear whole.

    `for_others` also writes column statistics and parquet's checksum of each page, which other
    readers use.
    """

    def __init__(
        self, path: Path, columns: Sequence[WantedColumn], source: str, *, for_others: bool = True
    ):
        self._source = source
        self._groups: list[GroupMark] = []
        self._schema = pa.schema(
            pa.field(column.name, arrow_type(column), nullable=False) for column in columns
        )
        self._sink = _Tee(path)
        try:
            self._writer = self._arrow_writer(for_others)
        except BaseException:
            self._sink.close()
            raise

    def _arrow_writer(self, for_others: bool) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            self._schema,
            compression="none",
            use_dictionary=False,
            data_page_size=_PAGE_BYTES,
            write_statistics=for_others,
            write_page_checksum=for_others,
            **_ONE_PAGE,
        )

    def write(self, cells: Sequence[NDArray[Any]]) -> None:
        """Write a row group of 1 to 2^28 rows: an array per column, int32 ids or float32."""
        start = self._sink.restart()
        table = pa.Table.from_arrays([pa.array(column) for column in cells], schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        length, all_checksum = self._sink.length, self._sink.checksum()
        columns = tuple(checksum(np.ascontiguousarray(column).data) for column in cells)
        self._groups.append(GroupMark(start, length, table.num_rows, all_checksum, columns))

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the footer."""
        try:
            if kind is None:
                mark = Mark(tuple(self._schema.names), self._source, tuple(self._groups))
                self._writer.add_key_value_metadata({MARK_KEY: mark.to_json()})
            self._writer.close()
        finally:
            self._sink.close()


def certify(path: Path, columns: Sequence[WantedColumn]) -> None:
    """Read a written file as a loader will, and compare checksums with those of the writer."""
    file = PackedFile(str(path))
    buffer = memoryview(bytearray())
    for index, num_rows in enumerate(file.group_rows):
        try:
            layout = file.layout(index, num_rows, columns)
            if len(buffer) < layout.num_bytes:
                buffer = memoryview(bytearray(layout.num_bytes))
            file.read(layout, index, buffer[: layout.num_bytes], each_column=True)
        except DataError as error:
            raise OutputError(
                f"what was written is not what is read back: {error.message}",
                where=error.where,
                hint="Either the disk fails, or this version of pyarrow lays pages out otherwise.",
            ) from error


def arrow_type(column: WantedColumn) -> pa.DataType:
    """How a column is kept."""
    return pa.int32() if column.kind == "id" else pa.float32()


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
        """Bytes written since `restart`."""
        return self._position - self._start

    def restart(self) -> int:
        """Begin a new checksum; returns the file's length so far."""
        self._start = self._position
        self._hash.reset()
        return self._start

    def checksum(self) -> int:
        """XXH3 of the bytes written since `restart`."""
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
