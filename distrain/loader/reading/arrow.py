"""Reads row groups of parquet files, with `loader/parquet_pages` where possible, else Arrow."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError, DistrainError
from distrain.loader.options import FetchOptions
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import FILL_HINT, WantedColumn
from distrain.loader.reading.fetcher import Fetcher
from distrain.loader.reading.open_files import (
    FileFacts,
    Handle,
    LatestColumns,
    OpenFiles,
    column_numbers,
)
from distrain.loader.reading.partial_file import Span
from distrain.loader.reading.reader import (
    DecodedColumns,
    Expected,
    Reader,
    another_version,
    unreadable,
)
from distrain.loader.reading.slice_streams import Columns, SliceStreams
from distrain.storage.retrying import first_line, is_transient
from distrain.storage.urls import is_remote

_OPEN_FILES_PER_THREAD = 32
_MOST_LISTED = 5
_HEADER_BYTES = 100
_CHANGED = "The file is damaged, or was changed since its footer was read; start again."
# Columns that are decoded together should stay in the CPU cache until their rows are gathered:
# 65,536 rows of twelve columns are 3 MB. With fewer cells, threads wait more for Python's GIL.
# Slices of a large row group are decoded in order; so that all threads can work, the columns must
# form several streams, of fewer cells.
_CELLS_AT_A_TIME = 12 * 65_536
_CELLS_OF_A_SLICE = 4 * 65_536
_COLUMNS_TOGETHER = 4  # rows are gathered from four columns at a time


class ArrowReader(Reader):
    """Reads the wanted columns of row groups, from any thread.

    Each thread has its own handle of a file, so threads do not wait for each other. The handles of
    a file share its footer, which is read once. A thread keeps its 32 most recently used files open
    until it ends, or until `close`. If epochs overlap, the reader is not closed between them;
    threads end with their `EpochIterator`.

    The wanted columns of a remote row group are fetched to a file in memory, in advance if the row
    group was announced with `expect` (see `Fetcher`). A thread closes this file after each read.

    If the slices of a row group are requested from first to last, each is decoded once.
    `open_groups` is the number of row groups whose decoders stay open between slices;
    `threads` is the number of threads that may request slices at a time.
    """

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        *,
        open_groups: int = 1,
        threads: int = 1,
        fetch: FetchOptions | None = None,
    ):
        self._columns = tuple(columns)
        # One group more for each thread: a row group of the next epoch, or one not yet closed.
        self._streams = SliceStreams(len(columns) * (open_groups + threads), threads)
        self._known: dict[str, FileFacts] = {}
        self._latest = LatestColumns()
        self._versions: dict[str, str | None] = {}
        self._own = threading.local()
        self._open_files: weakref.WeakSet[OpenFiles] = weakref.WeakSet()
        self._fetcher = Fetcher(self._spans, fetch)

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        remote = (
            group if group is not None and is_remote(group.file) else None for group in groups
        )
        return self._fetcher.expect(remote, is_held)

    def read(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        try:
            yield from self._parts(group, columns)
        finally:
            if is_remote(group.file):
                self._close_file(group)  # otherwise it would keep the partial file in memory

    def _parts(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        num_bytes = self._check(group)
        flat = [column for column in columns if not column.is_list]
        lists = [column for column in columns if column.is_list]
        # For all slices of a row group the columns are grouped alike: each group has its stream.
        rows, cells = group.group_rows, _CELLS_AT_A_TIME
        if group.slice:
            rows = rows * group.slice.slice_rows // group.slice.group_rows
            cells = _CELLS_OF_A_SLICE
        at_a_time = _COLUMNS_TOGETHER * max(1, cells // max(1, rows * _COLUMNS_TOGETHER))
        for first in range(0, len(flat), at_a_time):
            some = flat[first : first + at_a_time]
            yield DecodedColumns(self._read_flat(group, some), bytes_read=num_bytes)
            num_bytes = 0
        for column in lists:
            values = _taken(self._read_arrow(group, [column.name])[column.name], group)
            yield DecodedColumns((), (_lists(column, values, group),), num_bytes)
            num_bytes = 0

    def _read_flat(
        self, group: RowGroup, columns: Sequence[WantedColumn]
    ) -> tuple[NDArray[Any], ...]:
        constants = dict(group.constants)
        wanted = [column for column in columns if column.name not in constants]
        columns_by_name = self._read_cells(group, [column.name for column in wanted])
        cells = {
            column.name: _cells(column, _taken(columns_by_name[column.name], group), group)
            for column in wanted
        }
        return tuple(
            np.full(group.num_rows, constants[column.name])
            if column.name in constants
            else cells[column.name]
            for column in columns
        )

    def _read_cells(self, group: RowGroup, names: list[str]) -> Columns:
        if group.slice:  # `SliceStream` decides how each column is decoded
            return self._read_arrow(group, names)
        columns = self._read_pages(group, names)
        if left := [name for name in names if name not in columns]:
            columns |= self._read_arrow(group, left)
        return columns

    def _read_pages(self, group: RowGroup, names: Sequence[str]) -> Columns:
        with self._errors_translated(group):
            pages = self._handle(group).pages
            return dict(pages.read(group.index, group.group_rows, names))

    def _columns_in(self, group: RowGroup) -> list[WantedColumn]:
        constants = dict(group.constants)
        return [column for column in self._columns if column.name not in constants]

    def _read_arrow(self, group: RowGroup, names: list[str]) -> Columns:
        with self._errors_translated(group):
            handle = self._handle(group)
            if not names:
                return {}
            if group.slice:
                opened = partial(self._open, group, streams=True)
                columns = self._streams.take(group, names, handle, opened)
                num_rows = min(map(len, columns.values()), default=0)
            else:
                parquet, index = handle.find(group.index)
                table = parquet.read_row_group(index, columns=names, use_threads=False)
                columns = dict(zip(table.column_names, table.columns, strict=True))
                num_rows = table.num_rows
        if num_rows != group.read_rows:  # pages may hold fewer rows than the footer says
            raise _other_rows(num_rows, group)
        return columns

    @contextlib.contextmanager
    def _errors_translated(self, group: RowGroup) -> Iterator[None]:
        try:
            yield
        except (DistrainError, MemoryError):
            raise
        except Exception as error:  # remote filesystems raise arbitrary errors
            more: dict[str, object] = {}
            if is_transient(error):
                self._close_file(group)
            else:
                more = self._damaged_columns(group)
            hint = "The file is damaged, or was removed or changed since the run began."
            raise unreadable(group, error, first_line(error), hint, **more) from error

    def _check(self, group: RowGroup) -> int:
        """Check that a row group is as planned; return the compressed bytes of the wanted columns.

        For a slice, the bytes are the share of its rows in the row group. Raises a `DataError` if
        the row group has not the planned number of rows, or the file not the wanted columns.
        """
        with self._errors_translated(group):
            handle = self._handle(group)
            row_group = handle.row_group(group.index)
        if row_group.num_rows != group.group_rows:
            raise _other_rows(row_group.num_rows, group)
        if handle.columns.problem:
            raise DataError(handle.columns.problem, where=group.where, hint=_CHANGED)
        numbers = handle.columns.numbers
        size = handle.pages.chunk_bytes(group.index, numbers)
        if size is None:
            size = sum(row_group.column(n).total_compressed_size for n in numbers)
        return size * group.read_rows // group.group_rows

    def _damaged_columns(self, group: RowGroup) -> dict[str, object]:
        damaged: list[str] = []
        names = [column.name for column in self._columns_in(group)]
        try:
            handle = self._handle(group)
        except Exception:  # the error is not about a column
            return {}
        for name in names:
            try:
                parquet, index = handle.find(group.index)
                parquet.read_row_group(index, columns=[name])
            except Exception:  # the error is already known; this finds the damaged columns
                damaged.append(name)
        if len(damaged) == len(names):
            return {}
        return {"column": ", ".join(damaged[:_MOST_LISTED])}

    def _close_file(self, group: RowGroup) -> None:
        files: OpenFiles | None = getattr(self._own, "files", None)
        handle = files.handles.pop(_key(group), None) if files else None
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close the files of all threads; no thread may read meanwhile.

        The reader may be used again.
        """
        self._streams.close()
        for files in list(self._open_files):
            files.close()
        self._fetcher.close()

    def _handle(self, group: RowGroup) -> Handle:
        key = _key(group)
        files: OpenFiles | None = getattr(self._own, "files", None)
        if files is None:
            files = self._own.files = OpenFiles()
            self._open_files.add(files)
        handles = files.handles
        if key not in handles:
            if len(handles) >= _OPEN_FILES_PER_THREAD:
                handles.popitem(last=False)[1].close()
            handles[key] = self._open(group)
        handles.move_to_end(key)
        return files.switch_to(handles[key])

    def _open(self, group: RowGroup, *, streams: bool = False) -> Handle:
        known = self._known.get(group.file)
        wanted = partial(self._latest.of, columns=self._columns_in(group))
        if is_remote(group.file):
            partial_file = self._fetcher.take(group)
            file = self._fetcher.file(group.file)
            self._check_version(group, file.version)
            known = known or FileFacts(file.footer, None)
            handle = Handle(partial_file.path, wanted, known, group.index, streams, partial_file)
        else:
            handle = Handle(group.file, wanted, known, group.index, streams)
        self._known[group.file] = FileFacts(handle.footer, handle.columns)
        return handle

    def _check_version(self, group: RowGroup, version: str | None) -> None:
        first = self._versions.setdefault(group.file, group.version or version)
        if version is not None and first != version:
            raise another_version(group.where)

    def _spans(
        self, group: RowGroup, paths: Sequence[str], metadata: pq.RowGroupMetaData
    ) -> list[Span]:
        # Only wanted columns: others may be encrypted, and reading their metadata would then abort
        # the process.
        numbers = column_numbers(paths, self._columns_in(group))
        return [_span(metadata.column(number)) for number in numbers]


def _key(group: RowGroup) -> tuple[str, int]:
    """Return the key under which a thread keeps the open file with a row group.

    For a local file, the key is that of the file; a remote file has one for each row group.
    """
    return group.file, group.index if is_remote(group.file) else -1


def _span(chunk: pq.ColumnChunkMetaData) -> Span:
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    # Some writers leave the dictionary's header out of the size; Arrow adds the same allowance.
    return Span(begin, begin + chunk.total_compressed_size + _HEADER_BYTES)


def _other_rows(num_rows: int, group: RowGroup) -> DataError:
    planned = group.group_rows
    if group.slice and num_rows < group.read_rows:
        num_rows += group.first_row  # the row of the row group where the pages end
    message = f"the row group has {num_rows} rows, not {planned} as planned"
    return DataError(message, where=group.where, hint=_CHANGED)


def _taken(
    values: NDArray[Any] | pa.ChunkedArray, group: RowGroup
) -> NDArray[Any] | pa.ChunkedArray:
    """Return the selected rows of a column; the values of other rows are never checked."""
    rows = group.taken
    if rows is None:
        return values
    return np.take(values, rows) if isinstance(values, np.ndarray) else values.take(rows)


def _cells(
    column: WantedColumn, values: NDArray[Any] | pa.ChunkedArray, group: RowGroup
) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    if pa.types.is_null(values.type):
        values = values.cast(_wider_type(column, values.type))
    if values.null_count:
        values = _without_nulls(column, values, group)
    array = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    cells: NDArray[Any] = _plain(array).to_numpy(zero_copy_only=False)
    return cells


def _plain(array: pa.Array) -> pa.Array:
    """Return dates as integers, days (date32) or milliseconds (date64) since 1970.

    Other arrays are returned unchanged.
    """
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_date64(array.type) else array


def _without_nulls(
    column: WantedColumn, values: pa.ChunkedArray, group: RowGroup
) -> pa.ChunkedArray:
    if column.fill_null is None:
        raise null_error(column, int(np.flatnonzero(values.is_null().to_numpy())[0]), group)
    values = pa.chunked_array([_plain(chunk) for chunk in values.chunks])
    kind = _wider_type(column, values.type)
    return pc.fill_null(values.cast(kind, safe=False), pa.scalar(column.fill_null, kind))


def _wider_type(column: WantedColumn, kind: pa.DataType) -> pa.DataType:
    """Return a type for a column's values, of type `kind`, that also holds its null replacement.

    For example, 0.5 would not fit an int32.
    """
    if column.kind == "id":
        has_room = not pa.types.is_null(kind) and kind.bit_width >= 32
        return kind if has_room else pa.int32()
    return kind if kind == pa.float64() else pa.float32()


def null_error(column: WantedColumn, row: int, group: RowGroup) -> DataError:
    return DataError(
        f"column {column.name!r} holds a null",
        where=group.where | {"row in the group": group.row_in_file(row), "column": column.name},
        hint=FILL_HINT,
    )


def null_item_error(column: WantedColumn, row: int, group: RowGroup) -> DataError:
    return DataError(
        f"column {column.name!r} holds a list with a null in it",
        where=group.where | {"row in the group": group.row_in_file(row), "column": column.name},
        hint="Drop or fill it when the table is prepared, or set fill_null_id or fill_null_value.",
    )


def _lists(column: WantedColumn, values: pa.ChunkedArray, group: RowGroup) -> pa.Array:
    """Return a `pa.ListArray` without nulls; if nulls are filled, a null list becomes an empty one.

    Raises a `DataError` for nulls that are not filled.
    """
    rows = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    if not pa.types.is_list(rows.type):  # large, or of fixed size
        rows = rows.cast(pa.list_(rows.type.value_type))
    if pa.types.is_null(rows.type.value_type):
        rows = rows.cast(pa.list_(_wider_type(column, rows.type.value_type)))
    is_date = rows.type.value_type in (pa.date32(), pa.date64())
    if not rows.null_count and not rows.values.null_count and not is_date:
        return rows
    lengths = pc.fill_null(rows.value_lengths(), 0).to_numpy(zero_copy_only=False)
    items = pa.chunked_array([rows.flatten()])
    if rows.null_count and column.fill_null is None:
        _without_nulls(column, pa.chunked_array([rows]), group)
    if items.null_count and column.fill_null is None:
        row_of_item = np.repeat(np.arange(len(rows)), lengths)
        row = int(row_of_item[np.flatnonzero(items.is_null().to_numpy())[0]])
        raise null_item_error(column, row, group)
    if items.null_count:
        items = _without_nulls(column, items, group)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = items.chunk(0) if items.num_chunks == 1 else pa.concat_arrays(items.chunks)
    return pa.ListArray.from_arrays(pa.array(offsets), _plain(flat))
