"""`BucketFile`: the buckets of a full shuffle, in a file on a local disk."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distrain.errors import OutputError
from distrain.loader.bucketing.bucket_store import KEY_CELLS, Cells, Run, Segment, segment_rows

_PREFIX = ".distrain-shuffle-"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class BucketFile:
    """The buckets of a full shuffle in an unlinked file, with the methods of `BucketMemory`.

    The kernel frees the file at `close`, or when the process ends, even if it is killed.

    A bucket consists of several segments, so `reserve` may return several runs (ranges of rows in a
    segment) for it. Only the segment of each bucket that is not full yet is in memory; `commit`
    writes full segments to the file. Disk space for all rows is reserved at the start.

    Args:
        sizes: The number of rows of each bucket, by its number.
        num_columns: The number of flat columns.
        folder: The folder of the file, which is created if it is missing.

    Raises:
        OutputError: The folder cannot be written to, or has too little space. Methods raise it if
            the file cannot be written or read.
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
        self._file = _new_file(folder, int(ends[-1]))

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
                done += os.pwrite(self._file.fileno(), data[done:], segment.place + done)
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
                    count = os.preadv(self._file.fileno(), some, place)
                except OSError as error:
                    raise self._not_read(f"cannot be read: {error.strerror}") from error
                if not count:
                    raise self._not_read("is shorter than what was written to it")
                place += count
                while some and count >= len(some[0]):
                    count -= len(some.pop(0))
                if count:
                    some[0] = some[0][count:]

    def _not_read(self, problem: str) -> OutputError:
        return OutputError(
            f"the shuffle's file {problem}",
            where={"folder": self._folder},
            hint="The disk fails, or the file was truncated: look at the system's log.",
        )

    def close(self) -> None:
        self._file.close()
        self._idle, self._open = [], {}


def _new_file(folder: str, size: int) -> IO[bytes]:
    try:
        os.makedirs(folder, exist_ok=True)
        file = tempfile.TemporaryFile(prefix=_PREFIX, dir=folder)  # noqa: SIM115
        try:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
        except BaseException:
            file.close()
            raise
    except OSError as error:
        raise _not_written(folder, error, size) from error
    return file


def _not_written(folder: str, error: OSError, size: int | None = None) -> OutputError:
    needed = "" if size is None else f" of {size} bytes"
    room = (
        "Free space there, name another folder (data.shuffle_dir), or use ranks on more hosts, "
        "each of which stores its share of the rows."
    )
    place = "Name a folder on a local disk that ranks can create and write to (data.shuffle_dir)."
    return OutputError(
        f"the file{needed} that a full shuffle needs cannot be written: {error.strerror or error}",
        where={"folder": folder},
        hint=room if error.errno in _NO_ROOM else place,
    )
