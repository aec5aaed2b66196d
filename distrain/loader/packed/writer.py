"""Packed files, written row group by row group, then read back."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from distrain.errors import DataError, OutputError
from distrain.loader.packed.file import PackedFile
from distrain.loader.packed.layout import MARK_KEY, GroupMark, Mark, checksum
from distrain.partition.columns import Wanted

MOST_GROUP_ROWS = 1 << 28

_PAGE_BYTES = 4 * MOST_GROUP_ROWS + 1  # parquet's own bound is 2 GiB
# Arrow bounds a page's rows as well since it can be told how many (20,000 unless it is told).
_ONE_PAGE = (
    {"max_rows_per_page": MOST_GROUP_ROWS}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters
    else {}
)


class PackedWriter:
    """Writes one packed file; a context manager.

    Args:
        path: Where; whoever calls makes it appear whole.
        columns: The flat columns, in the order of the file; ids become int32, all else float32.
        source: The fingerprint of the source, for the mark.
        for_others: Whether to spend time on what other readers profit from: column statistics and
            parquet's own checksum of each page.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(
        self, path: Path, columns: Sequence[Wanted], source: str, *, for_others: bool = True
    ):
        self._path = path
        self._columns = tuple(columns)
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
        """Write a row group.

        Args:
            cells: One array per column, `[rows]`, int32 for ids, float32 for all else; 1 row to
                2^28 rows.
        """
        start = self._sink.restart()
        table = pa.Table.from_arrays([pa.array(column) for column in cells], schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        length, all_checksum = self._sink.length, self._sink.checksum()
        columns = tuple(checksum(np.ascontiguousarray(column).data) for column in cells)
        self._groups.append(GroupMark(start, length, table.num_rows, all_checksum, columns))

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the footer."""
        try:
            if kind is None:
                mark = Mark(tuple(self._schema.names), self._source, tuple(self._groups))
                self._writer.add_key_value_metadata({MARK_KEY: mark.to_json()})
            self._writer.close()
        finally:
            self._sink.close()


def certify(path: Path, columns: Sequence[Wanted]) -> None:
    """Read a written file as a loader will, and compare with what was handed to the writer.

    Raises:
        OutputError: It does not hold these values where a reader will look for them.
    """
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


def arrow_type(column: Wanted) -> pa.DataType:
    """How a column is kept."""
    return pa.int32() if column.kind == "id" else pa.float32()


class _Tee:
    """A file that sums up what is written to it; what Arrow asks of a Python file, and no more."""

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
        """Of the bytes written since `restart`."""
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
