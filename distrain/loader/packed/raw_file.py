"""An open file of raw values, which are read into buffers and compared with checksums."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.packed.layout import GroupLayout, ListValues, Values
from distrain.loader.packed.mark import DAMAGED, checksum, new_checksum
from distrain.loader.partition.table import RowGroup
from distrain.loader.reading.reader import DecodedColumns

_BLOCK_BYTES = 1 << 20  # read at a time to verify large row groups
_ALIGNMENT = 64
_MOST_AT_ONCE = 256  # of parts that are read in one call; Linux takes 1,024 pieces, two for each
_MOST_GAP_BYTES = 4096  # between columns that are read at once: parquet's page headers are shorter
_CHANGED = "The file was changed since the run began; start again."
_FLIPPED = "The disk or a copy damaged the file: pack it again, or copy it again."

Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes, and time of the last change (ns) of a file."""


class Buffers:
    """A buffer for each thread; a new one takes that of one that ended, as memory is dear."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._free: deque[memoryview] = deque()

    def take(self, num_bytes: int) -> memoryview:
        """The first `num_bytes` of this thread's buffer, which is overwritten."""
        lease: _ThreadBuffer | None = getattr(self._own, "lease", None)
        if lease is None:
            lease = self._own.lease = _ThreadBuffer(self._free)
        if len(lease.buffer) < num_bytes:
            lease.buffer = memoryview(bytearray(num_bytes))
        return lease.buffer[:num_bytes]


class _ThreadBuffer:
    def __init__(self, free: deque[memoryview]):
        self._free = free
        try:
            self.buffer = free.pop()
        except IndexError:
            self.buffer = memoryview(b"")

    def __del__(self) -> None:
        self._free.append(self.buffer)


class RawFile:
    """A local file with raw values in it, for any number of threads.

    Its bytes are read with `preadv`, never mapped: where a mapped file is cut short, the process
    dies.
    """

    def __init__(self, path: str):
        self.path = path
        self._descriptor = -1  # for `__del__`, should the next line fail
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity: Identity = _identity(os.fstat(self._descriptor))

    def __del__(self) -> None:
        # A thread that still reads holds a reference, so no descriptor in use is closed.
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def is_unchanged(self) -> bool:
        """Whether the path still leads to this file, as it was when it was opened."""
        return _identity(os.stat(self.path)) == self.identity

    def replaced(self) -> DataError:
        return self.error("the file was replaced or written to", _CHANGED)

    def error(self, message: str, hint: str, **where: object) -> DataError:
        return DataError(message, where={"file": self.path, **where}, hint=hint)

    def fill(self, part: memoryview, start: int, index: int) -> None:
        done = 0
        while done < len(part):  # the kernel reads at most 2 GiB at once
            count = os.preadv(self._descriptor, [part[done:]], start + done)
            if not count:
                raise self.error("the file was cut short", _CHANGED, **{"row group": index})
            done += count

    def fill_all(
        self, parts: Sequence[memoryview], starts: Sequence[int], spare: memoryview, index: int
    ) -> None:
        """Read all `parts` from their `starts`; neighbours in one call, the gap into `spare`."""
        begin = 0
        for end in range(1, len(parts) + 1):
            if end < len(parts) and end - begin < _MOST_AT_ONCE:
                gap = starts[end] - starts[end - 1] - len(parts[end - 1])
                if 0 <= gap <= len(spare):
                    continue
            self._fill_neighbours(parts[begin:end], starts[begin:end], spare, index)
            begin = end

    def _fill_neighbours(
        self, parts: Sequence[memoryview], starts: Sequence[int], spare: memoryview, index: int
    ) -> None:
        pieces = []
        place = starts[0]
        for part, start in zip(parts, starts, strict=True):
            pieces += [spare[: start - place], part]
            place = start + len(part)
        if os.preadv(self._descriptor, pieces, starts[0]) == place - starts[0]:
            return
        for part, start in zip(parts, starts, strict=True):  # it was interrupted, or the file ends
            self.fill(part, start, index)

    def iter_parts(
        self,
        layout: GroupLayout,
        group: RowGroup,
        buffers: Buffers,
        columns_at_a_time: int,
        *,
        verify: bool = True,
    ) -> Iterator[DecodedColumns]:
        """The columns of a row group, or of a slice of it: some flat ones at a time, then lists.

        Cells are views of this thread's buffer. Of a whole row group checksums are compared as the
        columns come; those of a row group that is read in slices are for `verify_columns`.
        """
        whole = group.slice is None
        index, rows = group.index, group.read_rows
        stride = -(-4 * rows // _ALIGNMENT) * _ALIGNMENT
        num_bytes = layout.num_bytes * rows // group.group_rows
        for first in range(0, len(layout.cells), columns_at_a_time):
            some = layout.cells[first : first + columns_at_a_time]
            buffer = buffers.take(stride * len(some) + _MOST_GAP_BYTES)
            parts = [
                buffer[place : place + values.dtype.itemsize * rows]
                for place, values in zip(range(0, len(buffer), stride), some, strict=False)
            ]
            starts = [values.start + values.dtype.itemsize * group.first_row for values in some]
            self.fill_all(parts, starts, buffer[stride * len(some) :], index)
            if verify and whole:
                for values, part in zip(some, parts, strict=True):
                    self._compare(values, checksum(part), index)
            cells = map(np.frombuffer, parts, [values.dtype for values in some])
            yield DecodedColumns(tuple(cells), bytes_read=num_bytes)
            num_bytes = 0
        for column in layout.lists:
            first_item, end = (0, column.items.count) if whole else self._items(column, group)
            lengths = self._new(column.lengths, group.first_row, rows, index)
            items = self._new(column.items, first_item, end - first_item, index)
            if verify and whole:
                self._compare(column.lengths, checksum(lengths.data), index)
                self._compare(column.items, checksum(items.data), index)
            yield DecodedColumns((), (self._joined(column, lengths, items, index),), num_bytes)
            num_bytes = 0

    def verify_columns(self, layout: GroupLayout, index: int, buffers: Buffers) -> None:
        """Compare the checksums of all of a row group's columns, block by block."""
        block = buffers.take(_BLOCK_BYTES)
        for values in layout.values:
            found = new_checksum()
            for place in range(0, values.num_bytes, len(block)):
                part = block[: values.num_bytes - place]
                self.fill(part, values.start + place, index)
                found.update(part)
            self._compare(values, found.intdigest(), index)

    def item_starts(self, column: ListValues, index: int, slice_rows: int) -> NDArray[np.int64]:
        rows = column.lengths.count
        lengths = self._new(column.lengths, 0, rows, index)
        self._check_lengths(column, lengths, column.items.count, index)
        sums = np.add.reduceat(lengths, np.arange(0, rows, slice_rows), dtype=np.int64)
        return np.concatenate([[0], np.cumsum(sums)])

    def _items(self, column: ListValues, group: RowGroup) -> tuple[int, int]:
        assert group.slice is not None
        step, first = group.slice.slice_rows, group.first_row
        starts = self.item_starts(column, group.index, step)

        def items_before(row: int) -> int:
            if row == group.group_rows:
                return int(starts[-1])
            known = int(starts[row // step])  # a slice of all rows begins there
            rest = self._new(column.lengths, row // step * step, row % step, group.index)
            return known + int(rest.sum(dtype=np.int64))

        return items_before(first), items_before(first + group.read_rows)

    def _new(self, values: Values, first: int, count: int, index: int) -> NDArray[Any]:
        found = np.empty(count, values.dtype)
        if count:
            self.fill(found.data.cast("B"), values.start + found.itemsize * first, index)
        return found

    def _joined(
        self, column: ListValues, lengths: NDArray[Any], items: NDArray[Any], index: int
    ) -> pa.ListArray:
        self._check_lengths(column, lengths, len(items), index)
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(items))

    def _check_lengths(
        self, column: ListValues, lengths: NDArray[Any], items: int, index: int
    ) -> None:
        # Not left to checksums, which may be off, or made to fit: Arrow trusts offsets.
        if lengths.min(initial=0) < 0 or lengths.sum(dtype=np.int64) != items:
            message = "lengths of lists that no rows can have"
            where: dict[str, object] = {"row group": index, "column": column.items.name}
            raise self.error(message, DAMAGED, **where)

    def _compare(self, values: Values, found: int, index: int) -> None:
        if found != values.checksum:
            where: dict[str, object] = {"row group": index, "column": values.name}
            raise self.error("the checksum is wrong", _FLIPPED, **where)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
