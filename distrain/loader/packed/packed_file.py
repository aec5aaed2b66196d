"""An open packed file, whose bytes are read into buffers and compared with checksums."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.packed.layout import GroupLayout, ListValues, Values, group_layout
from distrain.loader.packed.mark import DAMAGED, Mark, checksum, mark_of, new_checksum
from distrain.loader.reading import DecodedColumns
from distrain.partition import RowGroup, WantedColumn

_BLOCK_BYTES = 1 << 20  # read at a time to verify large row groups
_REPLACED = "the file was replaced or written to"
_CHANGED = "The file was changed since the run began; start again."
_FLIPPED = "The disk or a copy damaged the file: pack it again, or copy it again."


class Buffers:
    """A buffer for each thread, kept between reads and grown when needed.

    The next new thread takes over the buffer of one that ended: new memory costs more than a read.
    """

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
    """A thread's hold of a buffer, which ends with the thread."""

    def __init__(self, free: deque[memoryview]):
        self._free = free
        try:
            self.buffer = free.pop()
        except IndexError:
            self.buffer = memoryview(b"")

    def __del__(self) -> None:
        self._free.append(self.buffer)


@dataclass(frozen=True)
class PackedFooter:
    """The footer of a packed file, whether the file is open or not.

    Attributes:
        identity: Device, inode, size in bytes, and time of the last change (ns) of the file.
        layouts: The layouts of the row groups that were read before.
        verified: Large row groups whose checksums were right when their slices were first read.
        item_starts: Of large row groups' list columns the number of items before each slice.
    """

    identity: tuple[int, int, int, int]
    metadata: pq.FileMetaData
    mark: Mark
    layouts: dict[int, GroupLayout] = field(default_factory=dict)
    verified: set[int] = field(default_factory=set)
    item_starts: dict[tuple[int, str], NDArray[np.int64]] = field(default_factory=dict)


class PackedFile:
    """A packed file at a local path and its footer, for any number of threads.

    The file's bytes are read with `preadv`, never mapped: where a mapped file is cut short, the
    process dies. `footer` is given if the file was open before; one of another file is refused.
    """

    def __init__(self, path: str, footer: PackedFooter | None = None):
        self.path = path
        self._verifying = threading.Lock()
        self._descriptor = -1  # for `__del__`, should the next line fail
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        identity = _identity(os.fstat(self._descriptor))
        if footer is not None and footer.identity != identity:
            raise DataError(_REPLACED, where={"file": path}, hint=_CHANGED)
        self.footer = footer or self._read_footer(identity)

    def _read_footer(self, identity: tuple[int, int, int, int]) -> PackedFooter:
        try:
            with os.fdopen(os.dup(self._descriptor), "rb") as handle:
                metadata = pq.read_metadata(handle)
        except pa.ArrowException as error:
            raise DataError(
                f"not a whole parquet file: {str(error).splitlines()[0]}",
                where={"file": self.path},
                hint="It was cut short or changed.",
            ) from None
        return PackedFooter(identity, metadata, mark_of(metadata, self.path))

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size in bytes, and time of the last change (ns)."""
        return self.footer.identity

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return tuple(group.num_rows for group in self.footer.mark.groups)

    def __del__(self) -> None:
        # A thread that still reads holds a reference, so no descriptor in use is closed.
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def is_unchanged(self) -> bool:
        """Whether the path still leads to this file, as it was when it was opened."""
        return _identity(os.stat(self.path)) == self.identity

    def check_unchanged(self) -> None:
        """Raise a `DataError` unless `is_unchanged`."""
        if not self.is_unchanged():
            raise DataError(_REPLACED, where={"file": self.path}, hint=_CHANGED)

    def layout(self, index: int, num_rows: int, wanted: Sequence[WantedColumn]) -> GroupLayout:
        """How to read the columns of a row group; `wanted` must be the same in every call."""
        known = self.footer.layouts.get(index)
        if known is None:
            if index >= len(self.footer.mark.groups):
                where = {"file": self.path, "row group": index}
                message = f"the file has {len(self.footer.mark.groups)} row groups"
                raise DataError(message, where=where, hint=_CHANGED)
            footer = self.footer
            known = group_layout(footer.metadata, footer.mark, index, wanted, self.path)
            self._check_byte_ranges(known, index)
            self.footer.layouts[index] = known
        if known.num_rows != num_rows:
            message = f"the row group has {known.num_rows} rows, not {num_rows} as planned"
            where = {"file": self.path, "row group": index}
            raise DataError(message, where=where, hint=_CHANGED)
        return known

    def _check_byte_ranges(self, layout: GroupLayout, index: int) -> None:
        # Checked before a buffer of the length that a footer claims is allocated.
        size = self.identity[2]
        if any(byte_range.start + byte_range.length > size for byte_range in layout.byte_ranges):
            where = {"file": self.path, "row group": index}
            raise DataError("the file was cut short", where=where, hint=_CHANGED)

    def read(
        self,
        layout: GroupLayout,
        index: int,
        buffer: memoryview,
        *,
        verify: bool = True,
        each_column: bool = False,
    ) -> DecodedColumns:
        """Read row group `index` into `buffer`, `[layout.num_bytes]`; cells are views of it.

        `verify` compares checksums, `each_column` also those of columns where that of all is right.
        """
        for byte_range in layout.byte_ranges:
            part = buffer[byte_range.place : byte_range.place + byte_range.length]
            self._fill_or_raise(part, byte_range.start, index)
        if verify:
            self._verify(layout, index, buffer, each_column)
        lists = [(column, _view(column.lengths, buffer)) for column in layout.lists]
        return DecodedColumns(
            tuple(_view(values, buffer) for values in layout.cells),
            tuple(
                self._joined(column, lengths, _view(column.items, buffer), index)
                for column, lengths in lists
            ),
            layout.num_bytes,
        )

    def read_slice(
        self, layout: GroupLayout, group: RowGroup, buffers: Buffers, *, verify: bool = True
    ) -> DecodedColumns:
        """Read a slice of a row group; cells are views of this thread's buffer.

        Checksums are of whole columns, so `verify` reads all of them where a row group begins.
        """
        if verify:
            with self._verifying:
                at_start = group.slice is None or group.slice.number == 0
                if at_start or group.index not in self.footer.verified:
                    self._verify_columns(layout, group, buffers.take(_BLOCK_BYTES))
                    self.footer.verified.add(group.index)
        size = 4 * group.num_rows
        buffer = buffers.take(size * len(layout.cells))
        cells = []
        for number, values in enumerate(layout.cells):
            part = buffer[number * size : (number + 1) * size]
            cells.append(self._read_values(values, group.first_row, part, group.index))
        lists = tuple(self._slice_of_lists(column, group) for column in layout.lists)
        return DecodedColumns(
            tuple(cells), lists, layout.num_bytes * group.num_rows // group.group_rows
        )

    def _read_values(
        self, values: Values, first: int, part: memoryview, index: int
    ) -> NDArray[Any]:
        """Fill `part` with a column's values from number `first` on."""
        self._fill_or_raise(part, values.start + 4 * first, index)
        return np.frombuffer(part, values.dtype)

    def _new_values(self, values: Values, first: int, count: int, index: int) -> NDArray[Any]:
        return self._read_values(values, first, memoryview(bytearray(4 * count)), index)

    def _slice_of_lists(self, column: ListValues, group: RowGroup) -> pa.ListArray:
        assert group.slice is not None
        starts = self._item_starts(column, group.index, group.slice.slice_rows)
        first, end = (int(starts[group.slice.number + more]) for more in (0, 1))
        lengths = self._new_values(column.lengths, group.first_row, group.num_rows, group.index)
        items = self._new_values(column.items, first, end - first, group.index)
        return self._joined(column, lengths, items, group.index)

    def _item_starts(self, column: ListValues, index: int, slice_rows: int) -> NDArray[np.int64]:
        """The number of items before each slice, and that of all."""
        key = (index, column.items.name)
        known = self.footer.item_starts.get(key)
        if known is None:
            rows = column.lengths.count
            lengths = self._new_values(column.lengths, 0, rows, index)
            sums = np.add.reduceat(lengths, np.arange(0, rows, slice_rows), dtype=np.int64)
            known = np.concatenate([[0], np.cumsum(sums)])
            self._check_lengths(column.items, lengths, column.items.count, index)
            self.footer.item_starts[key] = known
        return known

    def _joined(
        self, column: ListValues, lengths: NDArray[Any], items: NDArray[Any], index: int
    ) -> pa.ListArray:
        """The rows of lists, in memory of their own."""
        self._check_lengths(column.items, lengths, len(items), index)
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(items.copy()))

    def _check_lengths(self, values: Values, lengths: NDArray[Any], items: int, index: int) -> None:
        # Not left to checksums, which may be off, or made to fit: Arrow trusts offsets.
        if lengths.min(initial=0) < 0 or lengths.sum(dtype=np.int64) != items:
            where = {"file": self.path, "row group": index, "column": values.name}
            raise DataError("lengths of lists that no rows can have", where=where, hint=DAMAGED)

    def _verify_columns(self, layout: GroupLayout, group: RowGroup, block: memoryview) -> None:
        for values in layout.values:
            found = new_checksum()
            for place in range(0, values.num_bytes, len(block)):
                part = block[: values.num_bytes - place]
                self._fill_or_raise(part, values.start + place, group.index)
                found.update(part)
            if found.intdigest() != values.checksum:
                self._raise_flipped(group.index, {"column": values.name})

    def _fill_or_raise(self, part: memoryview, start: int, index: int) -> None:
        if not self._fill(part, start):
            where = {"file": self.path, "row group": index}
            raise DataError("the file was cut short", where=where, hint=_CHANGED)

    def _fill(self, part: memoryview, start: int) -> bool:
        done = 0
        while done < len(part):  # the kernel reads at most 2 GiB at once
            count = os.preadv(self._descriptor, [part[done:]], start + done)
            if not count:
                return False
            done += count
        return True

    def _verify(
        self, layout: GroupLayout, index: int, buffer: memoryview, each_column: bool
    ) -> None:
        # One call for all if all was read: each call gives up Python's lock and must get it again.
        all_good = layout.all_checksum is not None and checksum(buffer) == layout.all_checksum
        if all_good and not each_column:
            return
        for column in layout.values:
            values = buffer[column.place : column.place + column.num_bytes]
            if checksum(values) != column.checksum:
                self._raise_flipped(index, {"column": column.name})
        if layout.all_checksum is not None and not all_good:
            self._raise_flipped(index, {})

    def _raise_flipped(self, index: int, column: dict[str, str]) -> None:
        where = {"file": self.path, "row group": index, **column}
        raise DataError("the checksum is wrong", where=where, hint=_FLIPPED)


def _view(values: Values, buffer: memoryview) -> NDArray[Any]:
    return np.frombuffer(buffer, values.dtype, values.count, values.place)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
