"""Handles of open parquet files, for a thread or for a stream of slices, and their columns."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.parquet_pages.footer import TAIL_BYTES
from distrain.loader.parquet_pages.leaves import PageColumns, page_columns
from distrain.loader.parquet_pages.pages_of_file import PagesOfFile
from distrain.loader.partition.wanted_columns import WantedColumn, column_of_leaf, type_problem
from distrain.loader.reading.partial_file import PartialFile
from distrain.loader.reading.sliced_footer import SlicedFooter, is_sliceable, slice_footer

# The buffer of each column that is read in parts; otherwise Arrow reads whole column chunks.
_STREAM_BUFFER_BYTES = 64 << 10


_ARROW_SCHEMA = b"ARROW:schema"


class FileColumns(NamedTuple):
    problem: str | None  # why the file's columns cannot be used; `None` if they can
    numbers: list[int]  # the numbers of the wanted columns' leaves in the file
    pages: PageColumns  # the columns that can be decoded without Arrow


class LatestColumns:
    """Returns the columns of files; reuses the last result if the next file has the same schema.

    Arrow's schema conversion and the comparison with the wanted columns cost two milliseconds for
    40 columns, as much as 10,000 rows. Thread-safe.
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
        fills = {column.name: column.fill_null for column in columns if not column.is_list}
        limits = {column.name: column.id_limit for column in columns if column.kind == "id"}
        columns_of_file = FileColumns(
            _problem(parquet.schema_arrow, columns),
            column_numbers(paths_of(parquet.metadata), columns),
            page_columns(parquet, fills, fills, limits),
        )
        self._latest = schema, arrow, names, columns_of_file
        return columns_of_file


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
    lists = {column.name for column in columns if column.is_list}
    return [n for n, path in enumerate(paths) if column_of_leaf(path, flat, lists)]


class OpenFiles:
    """A thread's open handles, the most recently used last; closed when the thread ends."""

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
    footer: pq.FileMetaData | SlicedFooter  # sliced if the footer is long
    columns: FileColumns | None  # `None` until a handle has computed them


class Handle:
    """A parquet file, for one thread or for a stream of slices; opened in Arrow only if needed.

    Args:
        file: The path of a local file or of a partial file.
        columns_of: Returns the file's columns; called if `known` has none.
        known: Facts from an earlier handle of the same file, if any.
        index: The first row group that will be read.
        streams: Whether Arrow reads the row group in parts.
        partial_file: For a remote file, the partial file of that row group, which is kept in
            memory until `close`.
    """

    def __init__(
        self,
        file: str,
        columns_of: Callable[[pq.ParquetFile], FileColumns],
        known: FileFacts | None,
        index: int,
        streams: bool = False,
        partial_file: PartialFile | None = None,
    ):
        self._file = file
        self.partial_file = partial_file
        self._buffer_bytes = _STREAM_BUFFER_BYTES if streams else 0
        self._parquet: pq.ParquetFile | None = None
        self._index = -1  # the row group of the open footer, if footers are sliced
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
        if not is_sliceable(footer):
            return footer
        with open(self._file, "rb") as handle:
            start = handle.seek(-footer.serialized_size - TAIL_BYTES, os.SEEK_END)
            sliced = slice_footer(footer, handle.read(footer.serialized_size), start)
        if sliced is None:
            return footer
        self._close_parquet()  # otherwise it would keep the whole footer in memory
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
        # Without verification, a damaged bit could be read as a wrong number without an error.
        return pq.ParquetFile(
            self._file,
            metadata=footer,
            pre_buffer=False,
            buffer_size=self._buffer_bytes,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # as where `prep` reads raw rows
        )

    def close_row_group(self) -> None:
        """Free Arrow's state of the last row group, about 300 KB for 40 columns.

        Does this only if footers are sliced (see `sliced_footer.py`).
        """
        if isinstance(self.footer, SlicedFooter):
            self._close_parquet()

    def close(self) -> None:
        self._close_parquet()
        self.pages.close()
        self.partial_file = None

    def _close_parquet(self) -> None:
        parquet, self._parquet = self._parquet, None
        if parquet is not None:
            parquet.close(force=True)
