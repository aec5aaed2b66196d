"""Buckets in a file on a local disk.

Buckets of rows, written from any thread and each read once; those in memory.

A bucket is cut into segments. A segment is `[columns + 2, rows]` of 4-byte cells: the flat columns
as they lie in a batch, then the rows' keys, 8 bytes each.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.errors import OutputError

_PREFIX = ".distrain-shuffle-"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class BucketFile:
    """As `BucketMemory`, in a nameless file, which vanishes with this process, however it ends.

    Its whole size is reserved at once. Of each bucket one segment waits in memory.

    Raises:
        OutputError: The folder cannot be written to, or has too little room.
    """

    def __init__(self, sizes: Mapping[int, int], num_columns: int, folder: str):
        self._width = num_columns + KEY_CELLS
        self._rows = dict(sizes)
        self._segment_rows = segment_rows(num_columns, len(sizes))
        ends = np.cumsum([0, *sizes.values()]) * 4 * self._width
        self._places = dict(zip(sizes, ends.tolist(), strict=False))
        self._filled = dict.fromkeys(sizes, 0)
        self._open: dict[int, Segment] = {}
        self._idle: list[Cells] = []
        self._lock = threading.Lock()
        self._own = threading.local()
        self._folder = folder
        self._descriptor = _nameless_file(folder, int(ends[-1]))

    def reserve(self, buckets: Sequence[int], counts: Sequence[int]) -> list[Run]:
        runs = []
        with self._lock:
            for bucket, count in zip(buckets, counts, strict=True):
                while count:
                    filled = self._filled[bucket]
                    segment = self._segment_at(bucket, filled)
                    start = filled % self._segment_rows
                    taken = min(count, segment.cells.shape[1] - start)
                    self._filled[bucket] = filled + taken
                    runs.append(Run(segment, start, taken))
                    count -= taken
        return runs

    def _segment_at(self, bucket: int, row: int) -> Segment:
        if row % self._segment_rows:
            return self._open[bucket]
        rows = min(self._segment_rows, self._rows[bucket] - row)
        size = self._width * rows
        memory = (
            self._idle.pop() if self._idle else np.empty(self._width * self._segment_rows, "i4")
        )
        place = self._places[bucket] + row * 4 * self._width
        segment = Segment(memory[:size].reshape(self._width, rows), rows, place)
        self._open[bucket] = segment
        return segment

    def commit(self, runs: Sequence[Run]) -> None:
        full = []
        with self._lock:
            for run in runs:
                run.segment.left -= run.rows
                if not run.segment.left:
                    full.append(run.segment)
        for segment in full:
            self._write(segment)
        with self._lock:
            self._idle += [segment.cells.base for segment in full if segment.cells.base is not None]

    def _write(self, segment: Segment) -> None:
        data, done = segment.cells.data.cast("B"), 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], segment.place + done)
        except OSError as error:
            raise _not_written(self._folder, error) from error

    def keys(self, bucket: int) -> NDArray[np.uint64]:
        keys = np.empty(self._rows[bucket], np.uint64)
        skipped = 4 * (self._width - KEY_CELLS)
        for first, rows, place in self._segments_of(bucket):
            self._fill([keys[first : first + rows]], place + skipped * rows)
        return keys

    def columns(self, bucket: int) -> Cells:
        num_columns, num_rows = self._width - KEY_CELLS, self._rows[bucket]
        memory: Cells | None = getattr(self._own, "memory", None)
        if memory is None or len(memory) < num_columns * num_rows:
            memory = self._own.memory = np.empty(num_columns * num_rows, np.int32)
        cells = memory[: num_columns * num_rows].reshape(num_columns, num_rows)
        for first, rows, place in self._segments_of(bucket):
            self._fill([column[first : first + rows] for column in cells], place)
        return cells

    def _segments_of(self, bucket: int) -> list[tuple[int, int, int]]:
        num_rows, place = self._rows[bucket], self._places[bucket]
        return [
            (first, min(self._segment_rows, num_rows - first), place + first * 4 * self._width)
            for first in range(0, num_rows, self._segment_rows)
        ]

    def _fill(self, parts: Sequence[NDArray[Any]], place: int) -> None:
        most = os.sysconf("SC_IOV_MAX")
        for number in range(0, len(parts), most):
            some = [part.data.cast("B") for part in parts[number : number + most]]
            while some:
                try:
                    count = os.preadv(self._descriptor, some, place)
                except OSError as error:
                    raise self._not_read(f"cannot be read: {error.strerror}") from error
                if not count:
                    raise self._not_read("is shorter than what was written to it")
                place += count
                while some and count >= len(some[0]):
                    count -= len(some.pop(0))
                if count:
                    some[0] = some[0][count:]

    def _not_read(self, what: str) -> OutputError:
        return OutputError(
            f"the shuffle's file {what}",
            where={"folder": self._folder},
            hint="The disk fails, or something cut the file: look at its log.",
        )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._idle, self._open = [], {}

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self.close()


def _nameless_file(folder: str, size: int) -> int:
    try:
        os.makedirs(folder, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
            descriptor, path = tempfile.mkstemp(prefix=_PREFIX, dir=folder)
            os.unlink(path)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise _not_written(folder, error, size) from error
    return descriptor


def _not_written(folder: str, error: OSError, size: int | None = None) -> OutputError:
    needed = "" if size is None else f" of {size} bytes"
    room = (
        "Make room there, name another folder (data.shuffle_dir), or use more ranks on more hosts, "
        "each of which keeps its share of the rows."
    )
    place = "Name a folder on a local disk that ranks may make, and write to (data.shuffle_dir)."
    return OutputError(
        f"the file{needed} that a full shuffle needs cannot be written: {error.strerror or error}",
        where={"folder": folder},
        hint=room if error.errno in _NO_ROOM else place,
    )


Cells = NDArray[np.int32]

KEY_CELLS = 2
_SEGMENT_BYTES = 256 << 10
_LEAST_SEGMENT_BYTES = 16 << 10
_STAGED_BYTES = 256 << 20


def stored_row_bytes(num_columns: int) -> int:
    """Bytes of a row in a bucket.

    >>> stored_row_bytes(40)
    168
    """
    return 4 * (num_columns + KEY_CELLS)


def segment_rows(num_columns: int, buckets: int) -> int:
    """Rows of a segment of a file, so that one segment of each bucket can wait in memory."""
    size = min(_SEGMENT_BYTES, max(_LEAST_SEGMENT_BYTES, _STAGED_BYTES // max(buckets, 1)))
    return max(1, size // stored_row_bytes(num_columns))


def staged_bytes(num_columns: int, buckets: int) -> int:
    """The most bytes of segments that wait to be written to a file."""
    return buckets * segment_rows(num_columns, buckets) * stored_row_bytes(num_columns)


@dataclass
class Segment:
    cells: Cells  # `[columns + 2, rows]`
    left: int  # rows that are not written yet
    place: int = 0  # where the segment begins in the file, in bytes

    @property
    def block(self) -> Cells:
        return self.cells[:-KEY_CELLS]

    @property
    def keys(self) -> NDArray[np.uint64]:
        return self.cells[-KEY_CELLS:].reshape(-1).view(np.uint64)


class Run(NamedTuple):
    segment: Segment
    start: int
    rows: int


class Slabs:
    def __init__(self) -> None:
        self._idle: deque[Cells] = deque(maxlen=1)

    def take(self, cells: int) -> Cells:
        """Uninitialised memory of at least so many cells."""
        with contextlib.suppress(IndexError):
            idle = self._idle.popleft()
            if len(idle) >= cells:
                return idle
        return np.empty(cells, np.int32)

    def give_back(self, slab: Cells) -> None:
        self._idle.append(slab)

    def clear(self) -> None:
        self._idle.clear()


class BucketMemory:
    """Buckets in one piece of memory of the slabs, a segment each."""

    def __init__(self, sizes: Mapping[int, int], num_columns: int, slabs: Slabs):
        width = num_columns + KEY_CELLS
        self._slabs = slabs
        self._slab = slabs.take(width * sum(sizes.values()))
        self._segments: dict[int, Segment] = {}
        self._filled = dict.fromkeys(sizes, 0)
        self._lock = threading.Lock()
        end = 0
        for bucket, rows in sizes.items():
            cells = self._slab[end : end + width * rows].reshape(width, rows)
            self._segments[bucket] = Segment(cells, rows)
            end += width * rows

    def reserve(self, buckets: Sequence[int], counts: Sequence[int]) -> list[Run]:
        """Places for so many more rows of each bucket, which the caller fills and then commits."""
        runs = []
        with self._lock:
            for bucket, count in zip(buckets, counts, strict=True):
                start = self._filled[bucket]
                self._filled[bucket] = start + count
                runs.append(Run(self._segments[bucket], start, count))
        return runs

    def commit(self, runs: Sequence[Run]) -> None: ...

    def keys(self, bucket: int) -> NDArray[np.uint64]:
        """The keys of a bucket's rows, in the order in which they lie there."""
        return self._segments[bucket].keys

    def columns(self, bucket: int) -> Cells:
        """`[columns, rows]`; valid until the same thread reads another bucket."""
        return self._segments[bucket].block

    def close(self) -> None:
        if self._segments:
            self._segments = {}
            self._slabs.give_back(self._slab)
            del self._slab
