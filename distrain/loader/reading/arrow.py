"""Row groups of parquet files, read with Arrow; what `loader/pages` decodes faster, by that."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError, DistrainError
from distrain.loader.pages import PagesOfFile
from distrain.loader.reading.file_columns import FileColumns, LatestColumns
from distrain.loader.reading.reader import DecodedColumns, Reader, another_version, unreadable
from distrain.loader.reading.slice_streams import Columns, SliceStreams
from distrain.loader.reading.sliced_footer import LONG_BYTES, SlicedFooter, slice_footer
from distrain.partition import RowGroup, WantedColumn
from distrain.storage import first_line, is_remote, is_transient, open_input, version_in

_OPEN_FILES_PER_THREAD = 32
_MOST_LISTED = 5
_CHANGED = "The file is damaged, or was changed since its footer was read; start again."
# What is decoded at once should fit the processor's cache until it has been gathered from: 65,536
# rows of five columns are 1.3 MB. Decoding itself gets faster by it, too.
_COLUMNS_AT_A_TIME = 5
# Of each column that stays open. Without it Arrow reads a column's whole chunk at once.
_STREAM_BUFFER_BYTES = 64 << 10


class ArrowReader(Reader):
    """Reads row groups, the wanted columns only, from any thread.

    Each thread has its own handle of a file, so that threads don't wait for each other; the handles
    of a file share its footer, which is read once. A thread keeps its 32 latest files open until it
    ends: a loader whose epochs overlap never closes its reader, but each epoch has new threads.

    Slices of a row group are decoded one after another, each once, as long as they are asked for in
    this order, and by decoders that stay open for `open_groups` row groups; `threads` may ask
    at a time.
    """

    name = "arrow"

    def __init__(self, columns: Sequence[WantedColumn], *, open_groups: int = 1, threads: int = 1):
        self._columns = tuple(columns)
        lists = sum(column.is_list for column in columns)
        per_group = lists - (lists - len(columns)) // _COLUMNS_AT_A_TIME
        # One group more for each thread: another epoch's, or one that is left for the next.
        self._streams = SliceStreams(per_group * (open_groups + threads), threads)
        self._known: dict[str, _Known] = {}
        self._latest = LatestColumns()
        self._versions: dict[str, str | None] = {}
        self._own = threading.local()
        self._open_files: weakref.WeakSet[_OpenFiles] = weakref.WeakSet()

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        """The wanted columns, a few at a time; of a remote file all flat ones."""
        num_bytes = self._check(group)
        flat = [column for column in self._columns if not column.is_list]
        lists = [column for column in self._columns if column.is_list]
        # Each read of a remote file costs a round trip, so all flat columns are read at once.
        at_a_time = max(1, len(flat)) if is_remote(group.file) else _COLUMNS_AT_A_TIME
        for first in range(0, len(flat), at_a_time):
            some = flat[first : first + at_a_time]
            yield DecodedColumns(self._read_flat(group, some), bytes_read=num_bytes)
            num_bytes = 0
        for column in lists:
            values = self._read(group, [column.name])[column.name]
            yield DecodedColumns((), (_lists(column, values, group),), num_bytes)
            num_bytes = 0

    def _read_flat(
        self, group: RowGroup, columns: Sequence[WantedColumn]
    ) -> tuple[NDArray[Any], ...]:
        constants = dict(group.constants)
        wanted = [column for column in columns if column.name not in constants]
        found = self._read_cells(group, [column.name for column in wanted])
        cells = {column.name: _cells(column, found[column.name], group) for column in wanted}
        return tuple(
            np.full(group.num_rows, constants[column.name])
            if column.name in constants
            else cells[column.name]
            for column in columns
        )

    def _read_cells(self, group: RowGroup, names: list[str]) -> Columns:
        """Columns as they come from pages, or else from Arrow."""
        if group.slice:  # its stream knows which way each goes
            return self._read(group, names)
        found = self._read_pages(group, names)
        if left := [name for name in names if name not in found]:
            found |= self._read(group, left)
        return found

    def _read_pages(self, group: RowGroup, names: Sequence[str]) -> Columns:
        """Those of the columns that need no Arrow."""
        with self._errors_translated(group):
            pages = self._handle(group).pages
            if pages is None:
                return {}
            found = {name: pages.read(group.index, group.num_rows, name) for name in names}
        return {name: values for name, values in found.items() if values is not None}

    def _columns_in(self, group: RowGroup) -> list[WantedColumn]:
        """The columns to read from the file; others come from its path."""
        constants = dict(group.constants)
        return [column for column in self._columns if column.name not in constants]

    def _read(self, group: RowGroup, names: list[str]) -> Columns:
        with self._errors_translated(group):
            handle = self._handle(group)
            if not names:
                return {}
            if group.slice:
                opened = partial(self._open, group, streams=True)
                found = self._streams.take(group, names, handle.pages, opened)
                num_rows = min(map(len, found.values()), default=0)
            else:
                parquet, index = handle.find(group.index)
                table = parquet.read_row_group(index, columns=names, use_threads=False)
                found = dict(zip(table.column_names, table.columns, strict=True))
                num_rows = table.num_rows
        if num_rows != group.num_rows:  # pages may hold fewer than the footer says
            raise _other_rows(num_rows, group)
        return found

    @contextlib.contextmanager
    def _errors_translated(self, group: RowGroup) -> Iterator[None]:
        try:
            yield
        except (DistrainError, MemoryError):
            raise
        except Exception as error:  # remote filesystems raise what they like
            more: dict[str, object] = {}
            if is_transient(error):
                self._close_file(group.file)
            else:
                more = self._damaged_columns(group)
            hint = "The file is damaged, or was removed or changed since the run began."
            raise unreadable(group, error, first_line(error), hint, **more) from error

    def _check(self, group: RowGroup) -> int:
        """Compare a row group with what was planned; compressed bytes of the wanted columns."""
        with self._errors_translated(group):
            handle = self._handle(group)
            row_group = handle.row_group(group.index)
        if row_group.num_rows != group.group_rows:
            raise _other_rows(row_group.num_rows, group)
        if handle.columns.problem:
            raise DataError(handle.columns.problem, where=group.where, hint=_CHANGED)
        size: int = sum(row_group.column(n).total_compressed_size for n in handle.columns.numbers)
        return size * group.num_rows // group.group_rows

    def _damaged_columns(self, group: RowGroup) -> dict[str, object]:
        """The columns that cannot be read, where others can."""
        damaged = []
        names = [column.name for column in self._columns_in(group)]
        for name in names:
            try:
                parquet, index = self._handle(group).find(group.index)
                parquet.read_row_group(index, columns=[name])
            except Exception:  # the error is known; the question is which columns it concerns
                damaged.append(name)
        if len(damaged) == len(names):
            return {}
        return {"column": ", ".join(damaged[:_MOST_LISTED])}

    def _close_file(self, file: str) -> None:
        """Close this thread's handle of a file, whose connection may be broken."""
        files: _OpenFiles | None = getattr(self._own, "files", None)
        handle = files.handles.pop(file, None) if files else None
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close all files, those of other threads as well; no thread may be reading.

        The reader may be used again: it still knows the footers.
        """
        self._streams.close()
        for files in list(self._open_files):
            files.close()
        self._own = threading.local()

    def _handle(self, group: RowGroup) -> _Handle:
        file = group.file
        files: _OpenFiles | None = getattr(self._own, "files", None)
        if files is None:
            files = self._own.files = _OpenFiles()
            self._open_files.add(files)
        handles = files.handles
        if file not in handles:
            if len(handles) >= _OPEN_FILES_PER_THREAD:
                handles.popitem(last=False)[1].close()
            handles[file] = self._open(group)
        handles.move_to_end(file)
        return files.switch_to(handles[file])

    def _open(self, group: RowGroup, *, streams: bool = False) -> _Handle:
        file = group.file
        wanted = partial(self._latest.of, columns=self._columns_in(group))
        handle = _Handle(file, wanted, self._known.get(file), streams)
        first = self._versions.setdefault(file, group.version or handle.version)
        if handle.version is not None and first != handle.version:
            handle.close()
            raise another_version(group)
        self._known[file] = _Known(handle.footer, handle.columns)
        return handle


class _OpenFiles:
    """A thread's handles, latest last; the thread's end closes them."""

    def __init__(self) -> None:
        self.handles: OrderedDict[str, _Handle] = OrderedDict()
        self._in_use: _Handle | None = None

    def switch_to(self, handle: _Handle) -> _Handle:
        """The handle; the one that was used before it closes its row group."""
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


class _Known(NamedTuple):
    """What is kept of a file for its next handle."""

    footer: pq.FileMetaData | SlicedFooter
    columns: FileColumns


class _Handle:
    """A parquet file, for one thread, or for a stream of slices; open in Arrow where Arrow reads.

    Attributes:
        footer: What is kept of its footer.
        version: The server's name of this version; `None` for local files.
        columns: The wanted columns, as the file has them.
        pages: What decodes some columns without Arrow; `None` for remote files.
    """

    def __init__(
        self,
        file: str,
        columns_of: Callable[[pq.ParquetFile], FileColumns],
        known: _Known | None,
        streams: bool = False,
    ):
        remote = is_remote(file)
        # Arrow opens local files itself and reads them without holding Python's lock.
        self._stream: IO[bytes] | None = open_input(file) if remote else None
        self.version = version_in(getattr(self._stream, "details", None) or {})
        self._file = file
        self._buffer_bytes = _STREAM_BUFFER_BYTES if streams and not remote else 0
        self._parquet: pq.ParquetFile | None = None
        self._index = -1  # which row group that is of, where the footer is sliced
        self.pages: PagesOfFile | None = None
        try:
            self.footer = known.footer if known else self._read_footer()
            self.columns = known.columns if known else columns_of(self.find(0)[0])
        except BaseException:
            self.close()
            raise
        if not remote:
            span = self.footer.span if isinstance(self.footer, SlicedFooter) else None
            self.pages = PagesOfFile(file, self.columns.pages, span)

    def _read_footer(self) -> pq.FileMetaData | SlicedFooter:
        self._parquet = self._open(None)
        footer = self._parquet.metadata
        if footer.serialized_size < LONG_BYTES:
            return footer
        with self._bytes() as handle:
            sliced = slice_footer(footer, handle)
        if sliced is None:
            return footer
        self._close_parquet()  # it holds the whole footer
        return sliced

    @contextlib.contextmanager
    def _bytes(self) -> Iterator[IO[bytes]]:
        if self._stream is not None:
            yield self._stream
        else:
            with open(self._file, "rb") as handle:
                yield handle

    def row_group(self, index: int) -> pq.RowGroupMetaData:
        """What the footer has of a row group."""
        if not isinstance(self.footer, SlicedFooter):
            return self.footer.row_group(index)
        parquet, number = self.find(index)
        return parquet.metadata.row_group(number)

    def find(self, index: int) -> tuple[pq.ParquetFile, int]:
        """A file whose footer has the row group, and the row group's number in it."""
        if not isinstance(self.footer, SlicedFooter):
            if self._parquet is None:
                self._parquet = self._open(self.footer)
            return self._parquet, index
        if self._parquet is None or self._index != index:
            begin, end = self.footer.span(index)
            with self._bytes() as handle:
                handle.seek(begin)
                part = handle.read(end - begin)
            self._close_parquet()
            self._parquet, self._index = self._open(self.footer.footer_of(part)), index
        return self._parquet, 0

    def _open(self, footer: pq.FileMetaData | None) -> pq.ParquetFile:
        # Without verification, a flipped bit would be a wrong number without an error.
        return pq.ParquetFile(
            self._stream or self._file,
            metadata=footer,
            pre_buffer=self._stream is not None,
            buffer_size=self._buffer_bytes,
            page_checksum_verification=True,
        )

    def close_row_group(self) -> None:
        """Close what only the last row group needs: some 300 KB of 40 columns."""
        if isinstance(self.footer, SlicedFooter):
            self._close_parquet()

    def close(self) -> None:
        self._close_parquet(force=True)
        if self.pages is not None:
            self.pages.close()
        if self._stream is not None:
            with contextlib.suppress(Exception):
                self._stream.close()

    def _close_parquet(self, force: bool = False) -> None:
        parquet, self._parquet = self._parquet, None
        if parquet is not None:
            # The connection may be broken; a stream stays open for the next row group.
            with contextlib.suppress(Exception):
                parquet.close(force=force or self._stream is None)


def _other_rows(num_rows: int, group: RowGroup) -> DataError:
    planned = group.group_rows
    if group.slice and num_rows < group.num_rows:
        num_rows += group.first_row  # where its pages end
    message = f"the row group has {num_rows} rows, not {planned} as planned"
    return DataError(message, where=group.where, hint=_CHANGED)


def _cells(
    column: WantedColumn, values: NDArray[Any] | pa.ChunkedArray, group: RowGroup
) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    if values.null_count:
        values = _without_nulls(column, values, group)
    array = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    cells: NDArray[Any] = _plain(array).to_numpy(zero_copy_only=False)
    return cells


def _plain(array: pa.Array) -> pa.Array:
    """Dates as whole numbers: days since 1970, or milliseconds."""
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_date64(array.type) else array


def _without_nulls(
    column: WantedColumn, values: pa.ChunkedArray, group: RowGroup
) -> pa.ChunkedArray:
    if column.fill_null is None:
        raise null_error(column, int(np.flatnonzero(values.is_null().to_numpy())[0]), group)
    values = pa.chunked_array([_plain(chunk) for chunk in values.chunks])
    kind = _type_with_room(column, values.type)
    return pc.fill_null(values.cast(kind, safe=False), pa.scalar(column.fill_null, kind))


def _type_with_room(column: WantedColumn, kind: pa.DataType) -> pa.DataType:
    """A type for the column's values and for what nulls become: 0.5 is no int32, 300 no int8."""
    if column.kind == "id":
        return kind if kind.bit_width >= 32 else pa.int32()
    return kind if kind == pa.float64() else pa.float32()


def null_error(column: WantedColumn, row: int, group: RowGroup) -> DataError:
    """What to raise about the first null of a column without a fill value."""
    return DataError(
        f"column {column.name!r} holds a null",
        where=group.where | {"row in the group": group.first_row + row, "column": column.name},
        hint="Fill the missing values when the table is prepared, or let the loader do it: "
        "fill_null_id for ids, fill_null_value for numbers.",
    )


def _lists(column: WantedColumn, values: pa.ChunkedArray, group: RowGroup) -> pa.Array:
    """Lists without nulls: a null list is an empty one where nulls are filled."""
    rows = pa.concat_arrays(values.chunks)
    if not pa.types.is_list(rows.type):  # large, or of fixed size
        rows = rows.cast(pa.list_(rows.type.value_type))
    lengths = pc.fill_null(rows.value_lengths(), 0).to_numpy(zero_copy_only=False)
    items = pa.chunked_array([rows.flatten()])
    if rows.null_count and column.fill_null is None:
        _without_nulls(column, pa.chunked_array([rows]), group)
    if items.null_count and column.fill_null is None:
        row_of_item = np.repeat(np.arange(len(rows)), lengths)
        row = int(row_of_item[np.flatnonzero(items.is_null().to_numpy())[0]])
        raise DataError(
            f"column {column.name!r} holds a list with a null in it",
            where=group.where | {"row in the group": group.first_row + row, "column": column.name},
            hint="Drop or fill it when the table is prepared, or set fill_null_id or "
            "fill_null_value.",
        )
    if items.null_count:
        items = _without_nulls(column, items, group)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = items.chunk(0) if items.num_chunks == 1 else pa.concat_arrays(items.chunks)
    return pa.ListArray.from_arrays(pa.array(offsets), _plain(flat))
