"""The file format of a cache entry: the columns of one row group as plain values, then an index.

The bytes of an entry, `NAME.rows`, format version 3, all numbers little-endian:

1. Each column's values, contiguous and of fixed width, aligned to 64 bytes; gaps are filled
   with zeros. First the flat columns: ids as `<i4`, or as `u1` or `<u2` if the largest id
   fits; everything else as `<f4`. Then two arrays of values for each list column: the list
   lengths of the rows (`<i4`), and the items (`<i4` ids or `<f4`).
2. The index of these arrays as JSON, for each array: `[name, dtype, count, first byte, XXH3-64 of
   the bytes]`.
3. 24 bytes: the XXH3-64 of the index, its length (both 8 bytes), and `dstrrow3`.

The values come first, so that columns can be written while they are decoded. A reader reads the
last 24 bytes, then the index, and then each column it needs. Columns are not encoded, so a GPU can
use them unchanged. A column is used only if its checksum matches.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.filling.filler import unusable
from distrain.loader.parquet_pages.leaves import NARROW_TYPES, narrow_type
from distrain.loader.parquet_pages.thread_memory import MEMORY
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns

ENTRY_VERSION = 3
ALIGNMENT = 64

_FORMAT = b"dstrrow3"
_TAIL = struct.Struct("<QQ8s")  # the index's checksum and length, and the format
_ID, _NUMBER, _LENGTH = np.dtype("<i4"), np.dtype("<f4"), np.dtype("<i4")
_NARROW = {kind.str: kind for kind in NARROW_TYPES}  # the narrow types of ids, by name
_DAMAGED = "The file was damaged on disk."
_MOST_AT_ONCE = 512  # buffers written in one call; Linux allows 1,024
_ZEROS = bytes(ALIGNMENT)
# The number of columns that are read together. They stay in the CPU cache until their rows are
# gathered; with fewer columns, threads wait more for Python's GIL.
_COLUMNS_AT_A_TIME = 12


class EntryWriter:
    """Writes one entry to a new file: `add` writes columns, and `finish` the index after them.

    Without the index the file is not an entry, so the caller renames it to its final name only
    after `finish`.
    """

    def __init__(self, path: Path, columns: Sequence[WantedColumn]):
        self._flat = [column for column in columns if not column.is_list]
        self._lists = [column for column in columns if column.is_list]
        self._written: list[list[object]] = []
        self.num_bytes = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def add(self, part: DecodedColumns) -> bool:
        """Write the next columns of the row group, and return True.

        Writes nothing and returns False if the stored type would hide an invalid value: an id above
        int32, for example, could become a valid id.
        """
        runs: list[tuple[WantedColumn, NDArray[Any] | None]] = []
        for cells in part.cells:
            column = self._flat.pop(0)
            is_narrow = column.kind == "id" and cells.dtype in NARROW_TYPES
            kept = cells if is_narrow else _narrowed(column, _kept(column, cells))
            runs.append((column, kept))
        for rows in part.lists:
            column = self._lists.pop(0)
            lengths = rows.value_lengths().to_numpy()
            items = rows.flatten().to_numpy(zero_copy_only=False)
            runs += [(column, lengths), (column, _kept(column, items))]
        pieces: list[bytes | memoryview] = []
        for column, values in runs:
            if values is None:
                return False
            pieces += self._listed(column, values)
        self._write(*pieces)
        return True

    def finish(self) -> None:
        text = json.dumps(self._written).encode()
        self._write(text + _TAIL.pack(_checksum(text), len(text), _FORMAT))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _listed(self, column: WantedColumn, values: NDArray[Any]) -> list[bytes | memoryview]:
        gap = _ZEROS[: -self.num_bytes % ALIGNMENT]
        content = np.ascontiguousarray(values).data.cast("B") if len(values) else memoryview(b"")
        start = self.num_bytes + len(gap)
        run = [column.name, values.dtype.str, len(values), start, _checksum(content)]
        self._written.append(run)
        self.num_bytes = start + len(content)
        return [gap, content]

    def _write(self, *contents: bytes | memoryview) -> None:
        left = [memoryview(content) for content in contents if len(content)]
        while left:
            done = os.writev(self._descriptor, left[:_MOST_AT_ONCE])
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]


class Values(NamedTuple):
    """An array of values in an entry, from byte `start` of the file on."""

    name: str
    dtype: np.dtype[Any]
    num_values: int
    start: int
    checksum: int

    @property
    def num_bytes(self) -> int:
        return self.dtype.itemsize * self.num_values

    @property
    def end(self) -> int:
        return self.start + self.num_bytes


class ListValues(NamedTuple):
    lengths: Values
    items: Values


class EntryFile:
    """An open entry, for any number of threads.

    It is read with `preadv` and not mapped to memory: if a mapped file is truncated, access to it
    kills the process.

    Attributes:
        identity: The device, inode, size in bytes, and modification time (ns) of the file.
        cells: The array of each flat column, in the order of `columns`.
        lists: The two arrays of each list column, in the order of `columns`.

    Raises:
        DataError: The file is not a complete entry of these columns.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str, columns: Sequence[WantedColumn], num_rows: int):
        self.path = path
        self._descriptor = -1
        self.open()
        self.identity = _identity(os.fstat(self._descriptor))
        self.cells: list[Values] = []
        self.lists: list[ListValues] = []
        try:
            self._find(columns, num_rows)
        except (ValueError, TypeError) as error:
            raise self._error(f"the list of columns is damaged: {error}") from None

    def open(self) -> None:
        """Open the file again after `close`; the index is not read again."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file; no thread may read meanwhile."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    __del__ = close

    @property
    def num_bytes(self) -> int:
        return self.identity[2]

    def is_unchanged(self) -> bool:
        """Return True if the path still refers to this file, and the file has not changed.

        Raises an `OSError` if there is no file any more.
        """
        return _identity(os.stat(self.path)) == self.identity

    def read(self, first: int) -> Iterator[DecodedColumns]:
        """Yield the columns from number `first` on: some flat columns at a time, then the lists.

        Flat columns are in memory that the calling thread reuses for the next ones. Raises a
        `DataError` if a checksum is wrong.
        """
        for begin in range(first, len(self.cells), _COLUMNS_AT_A_TIME):
            some = self.cells[begin : begin + _COLUMNS_AT_A_TIME]
            yield DecodedColumns(self._read_cells(some), (), _sum_of_bytes(some))
        for column in self.lists[max(0, first - len(self.cells)) :]:
            rows = self._joined(self._read_new(column.lengths), self._read_new(column.items))
            yield DecodedColumns((), (rows,), _sum_of_bytes(column))

    def _read_cells(self, columns: Sequence[Values]) -> tuple[NDArray[Any], ...]:
        start = columns[0].start
        (memory,) = MEMORY.columns_for(columns[-1].end - start, [np.dtype(np.uint8)])
        buffer = memory.data
        self._fill(buffer, start)
        parts = [buffer[values.start - start : values.end - start] for values in columns]
        for values, part in zip(columns, parts, strict=True):
            self._compare(values, part)
        return tuple(map(np.frombuffer, parts, [values.dtype for values in columns]))

    def _read_new(self, values: Values) -> NDArray[Any]:
        buffer = np.empty(values.num_values, values.dtype)
        if values.num_values:
            self._fill(buffer.data.cast("B"), values.start)
        self._compare(values, buffer.data)
        return buffer

    def _joined(self, lengths: NDArray[Any], items: NDArray[Any]) -> pa.ListArray:
        # Checked although there are checksums, which can be forged: Arrow does not check offsets.
        if lengths.min(initial=0) < 0 or lengths.sum(dtype=np.int64) != len(items):
            raise self._error("the list lengths are impossible")
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(items))

    def _compare(self, values: Values, content: memoryview) -> None:
        if _checksum(content) != values.checksum:
            raise self._error("the checksum is wrong", column=values.name)

    def _find(self, columns: Sequence[WantedColumn], num_rows: int) -> None:
        written, before = iter(self._read_list()), 0
        for column in columns:
            dtype = _dtype_of(column)
            if not column.is_list:
                values = self._values(written, column, dtype, num_rows)
                if not before <= values.start < before + ALIGNMENT:
                    raise self._error("the columns are not side by side")
                self.cells.append(values)
                before = values.end
                continue
            lengths = self._values(written, column, _LENGTH, num_rows)
            self.lists.append(ListValues(lengths, self._values(written, column, dtype, None)))

    def _read_list(self) -> list[list[Any]]:
        tail = self._bytes(self.num_bytes - _TAIL.size, _TAIL.size)
        sum_, length, name = _TAIL.unpack(tail)
        if name != _FORMAT:
            raise self._error("the entry is incomplete")
        text = self._bytes(self.num_bytes - _TAIL.size - length, length)
        if _checksum(text) != sum_:
            raise self._error("the list of columns is damaged")
        written: list[list[Any]] = json.loads(text)
        return written

    def _bytes(self, start: int, length: int) -> bytearray:
        if start < 0:
            raise self._error("the entry is incomplete")
        content = bytearray(length)
        self._fill(memoryview(content), start)
        return content

    def _values(
        self, written: Any, column: WantedColumn, dtype: np.dtype[Any], rows: int | None
    ) -> Values:
        name, kind, count, start, sum_ = next(written, ("", "", 0, 0, 0))
        if column.kind == "id" and not column.is_list:
            dtype = _NARROW.get(kind, dtype)
        values = Values(name, dtype, count, start, sum_)
        inside = 0 <= start <= values.end <= self.num_bytes
        if name != column.name or kind != dtype.str or rows not in (None, count) or not inside:
            raise self._error(f"it does not hold column {column.name!r} in the expected form")
        return values

    def _fill(self, part: memoryview, start: int) -> None:
        """Fill `part` with the file's bytes from `start` on; `DataError` if the file is shorter."""
        done = 0
        while done < len(part):  # the kernel reads at most 2 GiB at once
            count = os.preadv(self._descriptor, [part[done:]], start + done)
            if not count:
                raise self._error("the file was cut short")
            done += count

    def _error(self, message: str, **where: object) -> DataError:
        return DataError(message, where={"file": self.path, **where}, hint=_DAMAGED)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _checksum(content: bytes | bytearray | memoryview) -> int:
    return xxhash.xxh3_64_intdigest(content)


def _sum_of_bytes(values: Sequence[Values]) -> int:
    return sum(one.num_bytes for one in values)


def _dtype_of(column: WantedColumn) -> np.dtype[Any]:
    return _ID if column.kind == "id" else _NUMBER


def _kept(column: WantedColumn, values: NDArray[Any]) -> NDArray[Any] | None:
    """Return values in the type in which an entry stores them.

    Returns `None` if that could turn an invalid value into a valid one.
    """
    dtype = _dtype_of(column)
    lossless = np.can_cast(values.dtype, dtype, "safe")
    if not lossless and unusable(column, values).any():
        return None
    return values.astype(dtype, copy=False)


def _narrowed(column: WantedColumn, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return ids in the narrowest type that holds all of them; other values, or `None`, unchanged.

    Negative ids, which training rejects, are not narrowed.
    """
    if values is None or column.kind != "id":
        return values
    largest = int(values.view(np.uint32).max(initial=0))  # negative ids become large
    narrow = narrow_type(largest + 1)
    return values if narrow is None else values.astype(narrow)
