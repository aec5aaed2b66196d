"""Parquet files that are open for a thread, or for a stream of slices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import pyarrow.parquet as pq

from distrain.loader.pages import PagesOfFile
from distrain.loader.reading.file_columns import FileColumns
from distrain.loader.reading.image import Image
from distrain.loader.reading.sliced_footer import LONG_BYTES, SlicedFooter, slice_footer

# Of each column that stays open. Without it Arrow reads a column's whole chunk at once.
_STREAM_BUFFER_BYTES = 64 << 10


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
    """What is kept of a file for its next handle."""

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
