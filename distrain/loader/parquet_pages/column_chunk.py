"""Decodes one column chunk from its bytes, some rows at a time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.loader.parquet_pages import _pages

CODECS = ("UNCOMPRESSED", "SNAPPY", "LZ4", "ZSTD", "GZIP")
"""The supported codecs, by pyarrow's names; LZ4 is LZ4_RAW in the parquet format."""

_PYARROW_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd"}
_DICTIONARY_PAGE, _PLAIN = 2, 0
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_MOST_SKIPPED = 65_536  # rows decoded at a time while rows are skipped


class _Page(NamedTuple):
    kind: int
    encoding: int
    num_values: int
    start: int
    compressed: int
    uncompressed: int
    levels_bytes: int
    is_compressed: int
    checksum: int


class ColumnChunk:
    """Decodes the values of a column of a row group, in order.

    Args:
        chunk: All bytes of the column chunk.
        codec: One of `CODECS`.
        num_values: The number of rows.
        dtype: The type in the file.
        optional: Whether the column may have nulls, by the schema. A null is an error.
        read_again: Returns bytes of the chunk by start and count. If given, `chunk` is not kept,
            and a page is read when it is decoded.

    Raises:
        ValueError, OSError: The bytes are damaged, or their layout is not supported: Arrow has to
            read the column. All methods raise these errors.
    """

    def __init__(
        self,
        chunk: bytes | memoryview,
        codec: str,
        num_values: int,
        dtype: np.dtype[Any],
        *,
        optional: bool,
        read_again: Callable[[int, int], bytes] | None = None,
    ):
        self._chunk = memoryview(chunk)
        self._read_again: Callable[[int, int], bytes] | None = None
        self._codec = codec
        self._pyarrow_codec = pa.Codec(_PYARROW_CODECS[codec]) if codec in _PYARROW_CODECS else None
        self.dtype = dtype
        self._optional = optional
        pages = [_Page(*header) for header in _pages.headers(chunk, num_values, optional)]
        self._dictionary: NDArray[Any] = np.empty(0, dtype)
        if pages and pages[0].kind == _DICTIONARY_PAGE:
            first = pages.pop(0)
            # A copy, since a page may begin at any byte of the chunk.
            entries = np.frombuffer(self._content(first), dtype, first.num_values)
            self._dictionary = np.require(entries, requirements="A")
        if read_again is not None:
            self._read_again, self._chunk = read_again, memoryview(b"")
        self._pages: Iterator[_Page] = iter(pages)
        self._page: Any = b""
        self._left = 0  # values of `_page` that are left
        # the C code's position among the page's dictionary ids; `None` for a page of plain values
        self._run: NDArray[np.int64] | None = None
        self._start = 0  # offset in the page of the next plain value

    def read(self, rows: int) -> NDArray[Any]:
        values = np.empty(rows, self.dtype)
        self.read_into(values)
        return values

    def skip(self, rows: int) -> None:
        while rows > 0:
            rows -= len(self.read(min(rows, _MOST_SKIPPED)))

    def read_into(self, out: NDArray[Any]) -> None:
        """Fill an array, `[rows]`, C-contiguous and of type `dtype`, with the next values.

        Raises `ValueError` if fewer values are left, or a page is damaged.
        """
        done = 0
        while done < len(out):
            if not self._left:
                self._enter(next(self._pages, None))
            count = min(self._left, len(out) - done)
            self._take(out[done : done + count])
            self._left -= count
            done += count

    def _enter(self, page: _Page | None) -> None:
        if page is None:
            raise ValueError("there are fewer values than rows")
        content = self._content(page)
        start = max(0, page.levels_bytes)
        if self._optional:
            start = _pages.skip_levels(content, page.num_values, page.levels_bytes)
        self._page, self._left, self._start, self._run = content, page.num_values, start, None
        if page.encoding != _PLAIN:
            if start >= len(content):
                raise ValueError("a page of ids ends before their width")
            width = memoryview(content)[start]
            self._run = np.array([start + 1, width, 0, 0, 0, 0], np.int64)

    def _take(self, out: NDArray[Any]) -> None:
        if self._run is None:
            out[:] = np.frombuffer(self._page, self.dtype, len(out), self._start)
            self._start += out.nbytes
        else:
            _pages.lookup(self._page, self._run, self._dictionary, out, self.dtype.itemsize)

    def _content(self, page: _Page) -> Any:
        """Return a page's decompressed bytes: levels, then values."""
        if self._read_again is not None:
            raw = memoryview(self._read_again(page.start, page.compressed))
        else:
            raw = self._chunk[page.start : page.start + page.compressed]
        if page.checksum >= 0 and _pages.checksum(raw) != page.checksum:
            raise ValueError("a page's checksum is wrong")
        if self._codec == "UNCOMPRESSED" or not page.is_compressed:
            if page.compressed != page.uncompressed:
                raise ValueError("a page's sizes contradict each other")
            return raw
        if page.levels_bytes <= 0:
            return self._decompressed(raw, page.uncompressed)
        levels, values = raw[: page.levels_bytes], raw[page.levels_bytes :]
        content = self._decompressed(values, page.uncompressed - page.levels_bytes)
        return b"".join((levels, content))

    def _decompressed(self, raw: memoryview, size: int) -> Any:
        if self._codec == "GZIP":
            return _inflated(raw, size)
        if self._pyarrow_codec is None:
            block = np.empty(size, np.uint8)
            _pages.lz4(raw, block)
            return block
        # The codec does not report how much it wrote; beyond that would be uninitialised memory.
        if _pages.content_bytes(self._codec, raw) != size:
            raise ValueError("the size of a page differs from its header")
        return self._pyarrow_codec.decompress(raw, size)


def _inflated(raw: memoryview, size: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        content = stream.decompress(raw, size + 1)
    except zlib.error as error:
        raise ValueError(f"a page cannot be decompressed: {error}") from error
    if len(content) != size or not stream.eof:  # the stream's checksum is checked only at its end
        raise ValueError("the size of a page differs from its header")
    return content
