"""Decodes slices of large row groups one after another, with decoders that stay open.

Where a slice begins in a column is only known after the pages before it are read. So a decoder
stays open from one slice to the next, and returns each slice once. Any thread may request a slice.
If the decoder has not reached the slice, the thread skips or decodes the slices between, and keeps
those that other threads will request soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from distrain.loader.parquet_pages.pages_of_file import REFUSED, read_columns
from distrain.loader.partition.table import RowGroup, Selection, Slice
from distrain.loader.reading.open_files import Handle

_Key = tuple[str, int, Selection | None, tuple[str, ...]]
Columns = dict[str, Any]
"""Rows of some columns, by name: NumPy arrays of `loader/parquet_pages`, or Arrow's `ChunkedArray`.
"""


class SliceStream:
    """Decodes some columns of a row group, slice after slice.

    `file` is only used when the stream is created. `open_file` opens another handle, if columns
    have to be read with Arrow.
    """

    def __init__(
        self,
        group: RowGroup,
        names: Sequence[str],
        file: Handle,
        open_file: Callable[[], Handle],
    ):
        assert group.slice is not None
        self._index = group.index
        self._names = names
        self._slice_rows = group.slice.slice_rows
        self._spans: list[list[int]] = group.spans.tolist()
        self._at = 0  # the row that is read next
        self._open_file = open_file
        self._file: Handle | None = None
        self._partial_file = file.partial_file  # kept in memory until everything is read
        rows = group.group_rows
        opened = {name: file.pages.open(self._index, rows, name) for name in names}
        self._opened = {name: column for name, column in opened.items() if column is not None}
        self._batches: list[tuple[list[str], _RowsAhead]] = []
        self.following = 0  # the slice that is decoded next
        self.kept: dict[int, Columns] = {}  # slices decoded on the way to another one
        self.lock = threading.Lock()  # held while a thread decodes
        self.is_closed = False
        if left := [name for name in names if name not in self._opened]:
            self._begin(left)

    def _begin(self, names: list[str]) -> None:
        if self._file is None:
            self._file = self._open_file()
        parquet, number = self._file.find(self._index)
        batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
            batch_size=self._slice_rows, row_groups=[number], columns=names, use_threads=False
        )
        ahead = _RowsAhead(batches)
        self._skip_batches(ahead, self._at)
        self._batches.append((names, ahead))

    def _skip_batches(self, ahead: _RowsAhead, rows: int) -> None:
        while rows > 0:  # a slice's rows at a time, since skipped rows are decoded into memory
            ahead.take(min(rows, self._slice_rows))
            rows -= self._slice_rows

    def can_give(self, number: int) -> bool:
        return not self.is_closed and (number >= self.following or number in self.kept)

    def take(self, number: int, most_kept: int) -> Columns:
        """Return the columns of slice `number`, which can be requested only once.

        Decoded slices before it are kept for other threads, up to `most_kept`. The caller holds
        `lock`, and `can_give` must be true.
        """
        self._skip_to(number - most_kept)
        while self.following <= number:
            self.kept[self.following] = self._decode_next()
            self.following += 1
        result = self.kept.pop(number)
        for old in sorted(self.kept)[: max(0, len(self.kept) - most_kept)]:
            del self.kept[old]
        return result

    def _skip_to(self, number: int) -> None:
        if number > self.following:
            self._pass_to(self._spans[number][0])
            self.following = number

    def _pass_to(self, row: int) -> None:
        rows = row - self._at
        if rows <= 0:
            return
        refused = []
        for name, column in self._opened.items():
            try:
                column.skip(rows)
            except REFUSED:
                refused.append(name)
        for _, ahead in self._batches:
            self._skip_batches(ahead, rows)
        self._at = row
        self._leave_to_arrow(refused)

    def _leave_to_arrow(self, names: list[str]) -> None:
        for name in names:
            del self._opened[name]
            self._begin([name])

    def _decode_next(self) -> Columns:
        """Return the rows of the next slice; fewer at the end of the row group."""
        first, end = self._spans[self.following]
        self._pass_to(first)
        columns = self._from_pages(end - first)
        for names, ahead in self._batches:
            batch = ahead.take(end - first)
            columns.update(zip(names, batch.columns, strict=bool(batch.columns)))
        self._at = end
        # If the pages of a column end early, the slice is shorter; `ArrowReader` raises the error.
        rows = min((len(column) for column in columns.values()), default=0)
        if len(columns) < len(self._names):
            rows = 0
        return {name: columns[name][:rows] for name in self._names if name in columns}

    def _from_pages(self, rows: int) -> Columns:
        columns: Columns = dict(read_columns(self._opened, rows))
        # Arrow reads the columns that could not be decoded, or raises their errors.
        self._leave_to_arrow([name for name in self._opened if name not in columns])
        return columns

    def close(self) -> None:
        self.is_closed = True
        self._batches, self._opened, self._partial_file = [], {}, None
        self.kept.clear()
        if self._file is not None:
            self._file.close()


class _RowsAhead:
    def __init__(self, batches: Iterator[pa.RecordBatch]):
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> pa.Table:
        """Return the next `rows` rows; fewer at the end of the row group."""
        result: list[pa.RecordBatch] = []
        while rows > 0:
            batch = next(self._batches, None) if self._rest is None else self._rest
            if batch is None:
                break
            result.append(batch[:rows])
            self._rest = batch[rows:] if batch.num_rows > rows else None
            rows -= result[-1].num_rows
        return pa.Table.from_batches(result) if result else pa.table({})


class SliceStreams:
    """The open streams of a reader, for at most `threads` threads.

    Streams with at most `most_columns` columns in total stay open; the least recently used streams
    are closed first, except those in use.
    """

    def __init__(self, most_columns: int, threads: int):
        self._most_columns = most_columns
        self._most_kept = threads - 1
        self._streams: dict[_Key, list[SliceStream]] = {}  # least recently used first
        self._lock = threading.Lock()

    def take(
        self,
        group: RowGroup,
        names: Sequence[str],
        file: Handle,
        open_file: Callable[[], Handle],
    ) -> Columns:
        """Return the columns of a slice, with fewer rows than planned if the file has fewer.

        `names` must be the same for all slices of a row group. `file` and `open_file` are as for
        `SliceStream`.
        """
        assert group.slice is not None
        cut = group.slice
        key = (group.file, group.index, group.selection, tuple(names))
        while True:
            stream = self._find(key, cut.number)
            if stream is None:
                opened = partial(SliceStream, group, names, file, open_file)
                stream = self._open(key, cut, opened)
            with stream.lock:
                if not stream.can_give(cut.number):
                    continue  # another thread has read past the slice, or closed the stream
                try:
                    columns = stream.take(cut.number, self._most_kept)
                except BaseException:
                    self._end(key, stream)  # an iterator cannot continue after it has raised
                    raise
                if stream.following * cut.slice_rows >= cut.group_rows and not stream.kept:
                    self._end(key, stream)
                return columns

    def close(self) -> None:
        with self._lock:
            streams, self._streams = self._streams, {}
        for stream in chain.from_iterable(streams.values()):
            stream.close()

    def _find(self, key: _Key, number: int) -> SliceStream | None:
        """Return the stream that gives slice `number` with the least decoding.

        This is a stream that keeps the slice, or else the stream that has read furthest without
        passing it. Returns `None` if no stream can give the slice.
        """
        with self._lock:
            streams = self._streams.get(key, ())
            usable = [stream for stream in streams if stream.can_give(number)]
            if not usable:
                return None
            self._streams[key] = self._streams.pop(key)
            return max(usable, key=lambda stream: (number in stream.kept, stream.following))

    def _open(self, key: _Key, cut: Slice, opened: Callable[[], SliceStream]) -> SliceStream:
        with self._lock:
            for stream in self._streams.get(key, ()):  # another thread may have opened it meanwhile
                if stream.can_give(cut.number):
                    return stream
            while self._open_columns() + len(key[-1]) > self._most_columns and self._close_oldest():
                pass
            stream = opened()
            self._streams[key] = [*self._streams.pop(key, ()), stream]
            return stream

    def _open_columns(self) -> int:
        return sum(len(key[-1]) * len(streams) for key, streams in self._streams.items())

    def _close_oldest(self) -> bool:
        for key, stream in [(key, each) for key, all_ in self._streams.items() for each in all_]:
            if stream.lock.acquire(blocking=False):
                try:
                    stream.close()
                finally:
                    stream.lock.release()
                self._forget(key, stream)
                return True
        return False

    def _end(self, key: _Key, stream: SliceStream) -> None:
        stream.close()
        with self._lock:
            self._forget(key, stream)

    def _forget(self, key: _Key, stream: SliceStream) -> None:
        left = [each for each in self._streams.get(key, ()) if each is not stream]
        if left:
            self._streams[key] = left
        else:
            self._streams.pop(key, None)
