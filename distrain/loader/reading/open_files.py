"""Parquet files that are open for a thread, or for a stream of slices, and their wanted columns.

Of remote ones ranges are read by many threads at a time.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.pages import PageColumns, PagesOfFile, page_columns
from distrain.loader.reading.image import Image
from distrain.loader.reading.reader import another_version
from distrain.loader.reading.sliced_footer import LONG_BYTES, SlicedFooter, slice_footer
from distrain.partition import WantedColumn, column_of_leaf, type_problem
from distrain.storage import (
    Connections,
    SignedRanges,
    open_unbuffered,
    signed_ranges,
    version_in,
)

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length, and the magic word
_FIRST_BYTES = 64 << 10  # of the end of a file: most footers are shorter


class RemoteFile:
    """A parquet file on a filesystem of fsspec's; all methods from any thread.

    Each thread that reads has a handle of its own, so that ranges are asked for at a time. What the
    filesystem raises is passed on. An object of S3 is read by `SignedRanges` where that works.
    """

    def __init__(self, url: str, connections: Connections):
        self._url = url
        self._connections = connections
        self._signed: SignedRanges | None = None
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._idle: list[Any] = []
        self._size: int | None = None
        self.version: str | None = None  # the server's name of the version; `None` if it has none
        self._tail = b""
        self._footer: pq.FileMetaData | SlicedFooter | None = None
        self._footer_lock = threading.Lock()
        self.paths: tuple[str, ...] = ()  # of the leaf columns, when the footer is known

    @property
    def num_bytes(self) -> int:
        assert self._size is not None
        return self._size

    @property
    def footer(self) -> pq.FileMetaData | SlicedFooter:
        """What is kept of the footer, which is read once."""
        with self._footer_lock:
            if self._footer is None:
                self._footer = self._read_footer()
            return self._footer

    def read(self, begin: int, end: int) -> bytes:
        """Bytes of the file, in one request where the filesystem can do that.

        A `DataError` says that the file is another one than when it was first opened.
        """
        if self._signed is not None:
            content = self._signed.read(begin, end)
            if content is not None:
                return content
        handle = self._take_handle()
        # In memory all handles are one, and so is their place in the file.
        shared = self._one_at_a_time if isinstance(handle, io.BytesIO) else contextlib.nullcontext()
        try:
            with shared:
                handle.seek(begin)
                content = handle.read(end - begin)
                while len(content) < end - begin and (
                    more := handle.read(end - begin - len(content))
                ):
                    content += more
        except BaseException:
            _close(handle)
            raise
        self._give_back(handle)
        if len(content) != end - begin:
            raise OSError(f"the file ends at byte {begin + len(content)}, before {end}")
        return bytes(content)

    def row_group(self, index: int) -> tuple[pq.RowGroupMetaData, int, bytes]:
        """A row group in the footer, and where its part of the footer begins, with that."""
        footer = self.footer
        if isinstance(footer, SlicedFooter):
            begin, end = footer.span(index)
            part = self.read(begin, end)
            return footer.footer_of(part).row_group(0), begin, part
        return footer.row_group(index), self.num_bytes - len(self._tail), self._tail

    def close(self) -> None:
        """Close the handles that nobody reads with; the footer stays known."""
        with self._lock:
            idle, self._idle = self._idle, []
        for handle in idle:
            _close(handle)

    def _read_footer(self) -> pq.FileMetaData | SlicedFooter:
        self._give_back(self._take_handle())  # which asks for the size
        size = self.num_bytes
        tail = self.read(max(0, size - _FIRST_BYTES), size)
        length = int.from_bytes(tail[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
        if tail[-4:] != _MAGIC or length > size:
            raise pa.ArrowInvalid("it does not end as parquet files do")
        if length > len(tail):
            tail = self.read(size - length, size - len(tail)) + tail
        tail = tail[-length:]
        footer = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        self.paths = paths_of(footer)
        if footer.serialized_size >= LONG_BYTES:
            image = Image(size)
            image.write(size - length, tail)
            with open(image.path, "rb") as handle:
                sliced = slice_footer(footer, handle)
            if sliced is not None:
                return sliced
        self._tail = tail
        return footer

    def _take_handle(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        handle = open_unbuffered(self._url)
        details = getattr(handle, "details", None)
        version = version_in(details if isinstance(details, dict) else {})
        size = handle.seek(0, io.SEEK_END)
        with self._lock:
            if self._size is None:
                self._size, self.version = size, version
                self._signed = signed_ranges(handle, self._connections)
            is_same = (size, version) == (self._size, self.version)
        if is_same:
            return handle
        _close(handle)
        raise another_version({"file": self._url})

    def _give_back(self, handle: Any) -> None:
        with self._lock:
            self._idle.append(handle)


def _close(handle: Any) -> None:
    if not isinstance(handle, io.BytesIO):  # which the filesystem itself holds
        with contextlib.suppress(Exception):  # its connection may be broken
            handle.close()


# Of each column that stays open. Without it Arrow reads a column's whole chunk at once.
_STREAM_BUFFER_BYTES = 64 << 10


_ARROW_SCHEMA = b"ARROW:schema"


class FileColumns(NamedTuple):
    problem: str | None  # why they are not those that are wanted, if so
    numbers: list[int]  # their numbers in the file's row groups
    pages: PageColumns  # what decodes some of them without Arrow


class LatestColumns:
    """Gives the columns of files; of one that is like the file before it, the same again.

    What Arrow makes of a schema and the comparison with what is wanted cost two milliseconds for 40
    columns, as much as 10,000 rows. Any thread may ask.
    """

    def __init__(self) -> None:
        self._latest: tuple[pq.ParquetSchema, bytes, list[str], FileColumns] | None = None

    def of(self, parquet: pq.ParquetFile, columns: Sequence[WantedColumn]) -> FileColumns:
        schema = parquet.metadata.schema
        arrow = (parquet.metadata.metadata or {}).get(_ARROW_SCHEMA, b"")
        names = [column.name for column in columns]
        latest = self._latest
        if latest and latest[1:3] == (arrow, names) and schema.equals(latest[0]):
            return latest[3]
        prepared = [column for column in columns if column.kind != "raw"]
        fills = {column.name: column.fill_null for column in prepared if not column.is_list}
        limits = {column.name: column.id_limit for column in columns if column.kind == "id"}
        found = FileColumns(
            _problem(parquet.schema_arrow, columns),
            column_numbers(paths_of(parquet.metadata), columns),
            page_columns(parquet, fills, fills, limits),
        )
        self._latest = schema, arrow, names, found
        return found


def _problem(schema: pa.Schema, columns: Sequence[WantedColumn]) -> str | None:
    kinds = {field.name: field.type for field in schema}
    for column in columns:
        if column.name not in kinds:
            return f"column {column.name!r} is missing"
        problem = type_problem(column, kinds[column.name])
        if problem:
            return problem
    return None


def paths_of(metadata: pq.FileMetaData) -> tuple[str, ...]:
    return tuple(metadata.schema.column(n).path for n in range(metadata.num_columns))


def column_numbers(paths: Sequence[str], columns: Sequence[WantedColumn]) -> list[int]:
    flat = {column.name for column in columns if not column.is_list}
    lists = {column.name for column in columns if column.is_list or column.kind == "raw"}
    return [n for n, path in enumerate(paths) if column_of_leaf(path, flat, lists)]


class OpenFiles:
    """A thread's handles, latest last; the thread's end closes them."""

    def __init__(self) -> None:
        self.handles: OrderedDict[tuple[str, int], Handle] = OrderedDict()
        self._in_use: Handle | None = None

    def switch_to(self, handle: Handle) -> Handle:
        if self._in_use is not None and self._in_use is not handle:
            self._in_use.close_row_group()
        self._in_use = handle
        return handle

    def close(self) -> None:
        self._in_use = None
        while self.handles:
            self.handles.popitem()[1].close()

    def __del__(self) -> None:
        self.close()


class FileFacts(NamedTuple):
    footer: pq.FileMetaData | SlicedFooter  # of a long one what `SlicedFooter` keeps
    columns: FileColumns | None  # `None` until a handle has found them


class Handle:
    """A parquet file, for one thread, or for a stream of slices; open in Arrow where Arrow reads.

    `index` is a row group that will be read; of a remote file `image` holds that one alone.
    `streams` says whether Arrow reads it in parts.
    """

    def __init__(
        self,
        file: str,
        columns_of: Callable[[pq.ParquetFile], FileColumns],
        known: FileFacts | None,
        index: int,
        streams: bool = False,
        image: Image | None = None,
    ):
        self._file = file
        self.image = image
        self._buffer_bytes = _STREAM_BUFFER_BYTES if streams else 0
        self._parquet: pq.ParquetFile | None = None
        self._index = -1  # which row group that is of, where the footer is sliced
        try:
            self.footer = known.footer if known else self._read_footer()
            own = known.columns if known else None
            self.columns = own or columns_of(self.find(index)[0])
        except BaseException:
            self._close_parquet()
            raise
        span = self.footer.span if isinstance(self.footer, SlicedFooter) else None
        self.pages = PagesOfFile(file, self.columns.pages, span)

    def _read_footer(self) -> pq.FileMetaData | SlicedFooter:
        self._parquet = self._open(None)
        footer = self._parquet.metadata
        if footer.serialized_size < LONG_BYTES:
            return footer
        with open(self._file, "rb") as handle:
            sliced = slice_footer(footer, handle)
        if sliced is None:
            return footer
        self._close_parquet()  # it holds the whole footer
        return sliced

    def row_group(self, index: int) -> pq.RowGroupMetaData:
        if not isinstance(self.footer, SlicedFooter):
            return self.footer.row_group(index)
        parquet, number = self.find(index)
        return parquet.metadata.row_group(number)

    def find(self, index: int) -> tuple[pq.ParquetFile, int]:
        if not isinstance(self.footer, SlicedFooter):
            if self._parquet is None:
                self._parquet = self._open(self.footer)
            return self._parquet, index
        if self._parquet is None or self._index != index:
            begin, end = self.footer.span(index)
            with open(self._file, "rb") as handle:
                handle.seek(begin)
                part = handle.read(end - begin)
            self._close_parquet()
            self._parquet, self._index = self._open(self.footer.footer_of(part)), index
        return self._parquet, 0

    def _open(self, footer: pq.FileMetaData | None) -> pq.ParquetFile:
        # Without verification, a flipped bit would be a wrong number without an error.
        return pq.ParquetFile(
            self._file,
            metadata=footer,
            pre_buffer=False,
            buffer_size=self._buffer_bytes,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # as raw rows are read elsewhere
        )

    def close_row_group(self) -> None:
        """Close what only the last row group needs: some 300 KB of 40 columns."""
        if isinstance(self.footer, SlicedFooter):
            self._close_parquet()

    def close(self) -> None:
        self._close_parquet()
        self.pages.close()
        self.image = None

    def _close_parquet(self) -> None:
        parquet, self._parquet = self._parquet, None
        if parquet is not None:
            parquet.close(force=True)
