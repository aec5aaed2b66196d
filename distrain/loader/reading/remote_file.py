"""Reads ranges and the footer of a remote parquet file, from many threads at a time."""

from __future__ import annotations

import contextlib
import io
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.parquet_pages.footer import TAIL_BYTES
from distrain.loader.reading.open_files import paths_of
from distrain.loader.reading.reader import another_version
from distrain.loader.reading.sliced_footer import SlicedFooter, slice_footer
from distrain.storage.identity import version_in
from distrain.storage.inputs import open_unbuffered
from distrain.storage.ranges import Connections, SignedRanges, signed_ranges

_MAGIC = b"PAR1"
_FIRST_BYTES = 64 << 10  # the first request reads these last bytes: most footers are shorter


class RemoteFile:
    """A parquet file on an fsspec filesystem. All methods are thread-safe.

    Each reading thread uses a handle of its own, so that ranges are requested concurrently. Errors
    of the filesystem are raised unchanged. S3 objects are read by `SignedRanges` if possible.
    """

    def __init__(self, url: str, connections: Connections):
        self._url = url
        self._connections = connections
        self._signed: SignedRanges | None = None
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._idle: list[Any] = []
        self._size: int | None = None
        self.version: str | None = None  # the server's id of the file's version, if it has one
        self._tail = b""
        self._footer: pq.FileMetaData | SlicedFooter | None = None
        self._footer_lock = threading.Lock()
        self.paths: tuple[str, ...] = ()  # of the leaf columns, once the footer is read

    @property
    def num_bytes(self) -> int:
        assert self._size is not None
        return self._size

    @property
    def footer(self) -> pq.FileMetaData | SlicedFooter:
        """The footer, sliced if it is long; it is read at the first use."""
        with self._footer_lock:
            if self._footer is None:
                self._footer = self._read_footer()
            return self._footer

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes `begin .. end-1`, in one request if the filesystem supports it.

        Raises:
            DataError: The file was replaced or changed since it was first opened.
            OSError: The file ends before `end`, or the filesystem failed.
        """
        if self._signed is not None:
            content = self._signed.read(begin, end)
            if content is not None:
                return content
        handle = self._take_handle()
        # In fsspec's memory filesystem all handles of a file are one object with one position.
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
        """Return a row group's metadata, and the offset and bytes of a part of the file.

        The part is the row group's part of a sliced footer. If the footer is not sliced, it is the
        end of the file from the footer on.
        """
        footer = self.footer
        if isinstance(footer, SlicedFooter):
            begin, end = footer.span(index)
            part = self.read(begin, end)
            return footer.footer_of(part).row_group(0), begin, part
        return footer.row_group(index), self.num_bytes - len(self._tail), self._tail

    def close(self) -> None:
        """Close the handles that are not in use; the footer is kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for handle in idle:
            _close(handle)

    def _read_footer(self) -> pq.FileMetaData | SlicedFooter:
        self._give_back(self._take_handle())  # opening a handle sets `num_bytes`
        size = self.num_bytes
        tail = self.read(max(0, size - _FIRST_BYTES), size)
        length = int.from_bytes(tail[-TAIL_BYTES:-4], "little") + TAIL_BYTES
        if tail[-4:] != _MAGIC or length > size:
            raise pa.ArrowInvalid("it does not end like a parquet file")
        if length > len(tail):
            tail = self.read(size - length, size - len(tail)) + tail
        tail = tail[-length:]
        footer = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        self.paths = paths_of(footer)
        sliced = slice_footer(footer, tail[:-TAIL_BYTES], size - length)
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
    if not isinstance(handle, io.BytesIO):  # fsspec's memory filesystem still uses this object
        with contextlib.suppress(Exception):  # the connection may be broken
            handle.close()
