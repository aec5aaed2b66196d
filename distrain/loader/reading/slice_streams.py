"""Slices of large row groups, decoded one after another by decoders that stay open.

Parquet's pages can only be decoded from the start of a column chunk. So a decoder stays open from
one slice to the next, and gives each of them once. Any thread may ask for a slice: who finds the
decoder before the slice decodes what lies between, and keeps what another thread asks for soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.pages import PagesOfFile
from distrain.partition import RowGroup, Slice

_Key = tuple[str, int, tuple[str, ...]]


class OpenFile(Protocol):
    """A file that a stream has for itself.

    Attributes:
        pages: What decodes some of its columns without Arrow, if anything.
    """

    pages: PagesOfFile | None

    def find(self, index: int) -> tuple[pq.ParquetFile, int]:
        """A file whose footer has the row group, and the row group's number in it."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class SliceStream:
    """Some columns of a row group, slice after slice.

    Attributes:
        following: The slice that is decoded next.
        kept: Slices that were decoded on the way to another one.
        lock: Held while a thread decodes.
        is_closed: Whether it gives no more slices.
    """

    def __init__(self, file: OpenFile, index: int, names: list[str], slice_rows: int):
        self._file = file
        self._index = index
        self._names = names
        self._slice_rows = slice_rows
        parquet, number = file.find(index)
        self._rows = parquet.metadata.row_group(number).num_rows
        opened: dict[str, Any] = {}
        if file.pages is not None:
            pages = file.pages
            opened = {n: pages.open(index, self._rows, n, page_by_page=True) for n in names}
        self._chunks = {name: chunk for name, chunk in opened.items() if chunk is not None}
        self._batches: list[tuple[list[str], Iterator[pa.RecordBatch]]] = []
        if left := [name for name in names if name not in self._chunks]:
            self._begin(left)
        self.following = 0
        self.kept: dict[int, pa.Table] = {}
        self.lock = threading.Lock()
        self.is_closed = False

    def _begin(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Let Arrow decode some columns, from the row group's first row on."""
        parquet, number = self._file.find(self._index)
        batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
            batch_size=self._slice_rows, row_groups=[number], columns=names, use_threads=False
        )
        self._batches.append((names, batches))
        return batches

    def can_give(self, number: int) -> bool:
        """Whether the slice is still to come, or was kept."""
        return not self.is_closed and (number >= self.following or number in self.kept)

    def take(self, number: int, most_kept: int) -> pa.Table:
        """The slice; `most_kept` of those before it, the last ones, stay for other threads.

        A slice is passed over where the thread that was given it is late, however late that is. So
        no more are waited for than there are other threads, and older ones are never asked for.
        """
        while self.following <= number:
            table = self._decode_next()
            if self.following >= number - most_kept:
                self.kept[self.following] = table
            self.following += 1
        found = self.kept.pop(number)
        for old in sorted(self.kept)[: max(0, len(self.kept) - most_kept)]:
            del self.kept[old]
        return found

    def _decode_next(self) -> pa.Table:
        """The rows of the next slice; fewer where the row group ends."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = self._from_pages()
        for names, batches in self._batches:
            found = self._next_rows(batches)
            columns.update(zip(names, found.columns, strict=bool(found.columns)))
        # A column whose pages end early ends the slice, which its reader refuses.
        rows = min((len(column) for column in columns.values()), default=0)
        if len(columns) < len(self._names):
            rows = 0
        cells = {name: columns[name][:rows] for name in self._names if name in columns}
        return pa.table(cells)

    def _from_pages(self) -> dict[str, Any]:
        """The next rows of the columns that are decoded without Arrow."""
        rows = max(0, min(self._slice_rows, self._rows - self.following * self._slice_rows))
        columns: dict[str, Any] = {}
        for name, chunk in list(self._chunks.items()):
            values = np.empty(rows, chunk.dtype)
            try:
                chunk.read_into(values)
            except (ValueError, OSError, pa.ArrowException):  # Arrow says what it is
                del self._chunks[name]
                batches = self._begin([name])
                for _ in range(self.following):
                    self._next_rows(batches)
            else:
                columns[name] = pa.array(values)
        return columns

    def _next_rows(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        found: list[pa.RecordBatch] = []
        rows = 0
        # Arrow fills batches to their size but where a row group ends.
        while rows < self._slice_rows and (batch := next(batches, None)) is not None:
            found.append(batch)
            rows += batch.num_rows
        return pa.Table.from_batches(found) if found else pa.table({})

    def close(self) -> None:
        """Close the file; nobody may be decoding."""
        self.is_closed = True
        self._batches, self._chunks = [], {}
        self.kept.clear()
        self._file.close()


class SliceStreams:
    """The open streams of a reader, for any number of threads.

    Args:
        most_streams: How many stay open: those that were used last.
        threads: How many threads may ask for neighbouring slices at a time.
    """

    def __init__(self, most_streams: int, threads: int):
        self._most_streams = most_streams
        self._most_kept = threads - 1
        self._streams: list[tuple[_Key, SliceStream]] = []  # those that were used last stand last
        self._lock = threading.Lock()

    def take(
        self, group: RowGroup, cut: Slice, names: list[str], open_file: Callable[[], OpenFile]
    ) -> pa.Table:
        """The columns of a slice; it has fewer rows than planned where the file has."""
        while True:
            key = (group.file, group.index, tuple(names))
            stream = self._find(key, cut.number) or self._open(key, cut, open_file)
            with stream.lock:
                if not stream.can_give(cut.number):
                    continue  # another thread was faster, or it was closed
                try:
                    table = stream.take(cut.number, self._most_kept)
                except BaseException:
                    stream.close()  # an iterator that raised is over
                    raise
                if stream.following * cut.slice_rows >= cut.group_rows and not stream.kept:
                    stream.close()
                return table

    def close(self) -> None:
        """Close all streams; no thread may be reading."""
        with self._lock:
            streams, self._streams = self._streams, []
        for _, stream in streams:
            stream.close()

    def _find(self, key: _Key, number: int) -> SliceStream | None:
        """The stream that is nearest to the slice and not behind it."""
        with self._lock:
            self._streams = [entry for entry in self._streams if not entry[1].is_closed]
            found = [
                entry for entry in self._streams if entry[0] == key and entry[1].can_give(number)
            ]
            if not found:
                return None
            best = max(found, key=lambda entry: (number in entry[1].kept, entry[1].following))
            self._streams.remove(best)
            self._streams.append(best)
            return best[1]

    def _open(self, key: _Key, cut: Slice, open_file: Callable[[], OpenFile]) -> SliceStream:
        with self._lock:
            for other, stream in self._streams:  # another thread may have opened it meanwhile
                if other == key and stream.can_give(cut.number):
                    return stream
            while len(self._streams) >= self._most_streams and self._close_oldest():
                pass
            stream = SliceStream(open_file(), key[1], list(key[2]), cut.slice_rows)
            self._streams.append((key, stream))
            return stream

    def _close_oldest(self) -> bool:
        for entry in self._streams:
            if entry[1].lock.acquire(blocking=False):
                try:
                    entry[1].close()
                finally:
                    entry[1].lock.release()
                self._streams.remove(entry)
                return True
        return False
