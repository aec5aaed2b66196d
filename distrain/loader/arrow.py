"""Row groups of parquet files, read with Arrow."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError, DistrainError, Unavailable
from distrain.loader.footers import LONG_BYTES, SlicedFooter, slice_footer
from distrain.loader.reader import Decoded, joined
from distrain.loader.same_files import another_version
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted, column_of_leaf, type_problem
from distrain.storage import may_pass, open_input
from distrain.storage.identity import version_told

_OPEN_FILES_PER_THREAD = 32
_MOST_LISTED = 5
_CHANGED = "The file is damaged, or was changed since its footer was read; start again."
# What is decoded at once should fit the processor's cache until it has been gathered from: 65,536
# rows of five columns are 1.3 MB. Decoding itself gets faster by it, too.
_COLUMNS_AT_A_TIME = 5


class ArrowReader:
    """Reads row groups, the wanted columns only, from any thread.

    Each thread has its own handle of a file, so that threads don't wait for each other; the handles
    of a file share its footer, which is read once. A thread keeps its 32 latest files open until it
    ends: a loader whose epochs overlap never closes its reader, but each epoch has new threads.
    """

    name = "arrow"

    def __init__(self, columns: Sequence[Wanted]):
        self._columns = tuple(columns)
        self._footers: dict[str, pq.FileMetaData | SlicedFooter] = {}
        self._versions: dict[str, str | None] = {}
        self._own = threading.local()
        self._open_files: weakref.WeakSet[_OpenFiles] = weakref.WeakSet()

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group.

        Raises:
            DataError: The file cannot be read any more, or is not the one that was planned with, or
                a column holds a null that nothing is to be put in place of.
            Unavailable: The storage does not answer; another try opens the file anew.
        """
        return joined(self.read_in_parts(group))

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, a few columns at a time; of a remote file all flat ones."""
        where = {"file": group.file, "row group": group.index}
        num_bytes = self._check(group, where)
        flat = [column for column in self._columns if not column.is_list]
        lists = [column for column in self._columns if column.is_list]
        # Far away, each read is a journey: then all of them in one.
        at_a_time = max(1, len(flat)) if "://" in group.file else _COLUMNS_AT_A_TIME
        for first in range(0, len(flat), at_a_time):
            some = flat[first : first + at_a_time]
            yield Decoded(self._read_flat(group, some, where), bytes_read=num_bytes)
            num_bytes = 0
        for column in lists:
            values = self._read(group, [column.name], where).column(0)
            yield Decoded((), (_lists(column, values, where),), num_bytes)
            num_bytes = 0

    def _read_flat(
        self, group: RowGroup, columns: Sequence[Wanted], where: dict[str, object]
    ) -> tuple[NDArray[Any], ...]:
        constants = dict(group.constants)
        names = [column.name for column in columns if column.name not in constants]
        table = self._read(group, names, where)
        found = dict(zip(table.column_names, table.columns, strict=True))
        return tuple(
            np.full(group.num_rows, constants[column.name])
            if column.name in constants
            else _cells(column, found[column.name], where)
            for column in columns
        )

    def _names_in(self, group: RowGroup) -> list[str]:
        """The columns to read from the file; others come from its path."""
        constants = dict(group.constants)
        return [column.name for column in self._columns if column.name not in constants]

    def _read(self, group: RowGroup, names: list[str], where: dict[str, object]) -> pa.Table:
        with self._failures_told(group, where):
            parquet, index = self._handle(group).find(group.index)
            table = parquet.read_row_group(index, columns=names, use_threads=False)
        if names and table.num_rows != group.num_rows:  # pages may hold fewer than the footer says
            raise _other_rows(table.num_rows, group, where)
        return table

    @contextlib.contextmanager
    def _failures_told(self, group: RowGroup, where: dict[str, object]) -> Iterator[None]:
        try:
            yield
        except (DistrainError, MemoryError):
            raise
        except Exception as error:  # remote filesystems raise what they like
            lines = str(error).splitlines() or [type(error).__name__]
            message = f"could not read a row group: {lines[0]}"
            if may_pass(error):
                self._let_go(group.file)
                raise Unavailable(message, where=where) from error
            raise DataError(
                message,
                where=where | self._damaged_columns(group),
                hint="The file is damaged, or was removed or changed since the run began.",
            ) from error

    def _check(self, group: RowGroup, where: dict[str, object]) -> int:
        """Compare a row group with what was planned; compressed bytes of the wanted columns."""
        with self._failures_told(group, where):
            handle = self._handle(group)
            parquet, index = handle.find(group.index)
            row_group = parquet.metadata.row_group(index)
        if row_group.num_rows != group.num_rows:
            raise _other_rows(row_group.num_rows, group, where)
        if handle.problem:
            raise DataError(handle.problem, where=where, hint=_CHANGED)
        return sum(row_group.column(n).total_compressed_size for n in handle.column_numbers)

    def _damaged_columns(self, group: RowGroup) -> dict[str, object]:
        """The columns that cannot be read, where others can."""
        damaged = []
        names = self._names_in(group)
        for name in names:
            try:
                parquet, index = self._handle(group).find(group.index)
                parquet.read_row_group(index, columns=[name])
            except Exception:  # the error is known; now it is about where
                damaged.append(name)
        if len(damaged) == len(names):
            return {}
        return {"column": ", ".join(damaged[:_MOST_LISTED])}

    def _let_go(self, file: str) -> None:
        """Close this thread's handle of a file, whose connection may be broken."""
        files: _OpenFiles | None = getattr(self._own, "files", None)
        handle = files.handles.pop(file, None) if files else None
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close all files, those of other threads as well; no thread may be reading.

        The reader may be used again: it still knows the footers.
        """
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
            constants = dict(group.constants)
            columns = [column for column in self._columns if column.name not in constants]
            handle = _Handle(file, columns, self._footers.get(file))
            first = self._versions.setdefault(file, group.version or handle.version)
            if handle.version is not None and first != handle.version:
                handle.close()
                raise another_version(group)
            handles[file] = handle
            self._footers[file] = handle.footer
        handles.move_to_end(file)
        return files.take_up(handles[file])


class _OpenFiles:
    """A thread's handles, latest last; the thread's end closes them."""

    def __init__(self) -> None:
        self.handles: OrderedDict[str, _Handle] = OrderedDict()
        self._in_use: _Handle | None = None

    def take_up(self, handle: _Handle) -> _Handle:
        """The handle; another one that was used before it lets go of its row group."""
        if self._in_use is not None and self._in_use is not handle:
            self._in_use.rest()
        self._in_use = handle
        return handle

    def close(self) -> None:
        self._in_use = None
        while self.handles:
            self.handles.popitem()[1].close()

    def __del__(self) -> None:
        self.close()


class _Handle:
    """An open parquet file, for one thread.

    Attributes:
        footer: What is kept of its footer.
        version: What a server says that it is; `None` for local files, which others look after.
        problem: Why its columns are not those that are wanted, if so.
        column_numbers: The wanted columns' numbers in its row groups.
    """

    def __init__(
        self,
        file: str,
        columns: Sequence[Wanted],
        footer: pq.FileMetaData | SlicedFooter | None,
    ):
        remote = "://" in file
        # Arrow opens local files itself and reads them without holding Python's lock.
        self._stream: IO[bytes] | None = open_input(file) if remote else None
        self.version = version_told(getattr(self._stream, "details", None) or {})
        self._file = file
        self._parquet: pq.ParquetFile | None = None
        self._index = -1  # which row group that is of, where the footer is sliced
        try:
            if footer is None:
                footer = self._read_footer()
            self.footer = footer
            parquet, _ = self.find(0)
        except BaseException:
            self.close()
            raise
        self.problem = _problem(parquet.schema_arrow, columns)
        self.column_numbers = _column_numbers(parquet.metadata, columns)

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

    def find(self, index: int) -> tuple[pq.ParquetFile, int]:
        """Where a row group can be read, and its number there."""
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
        # Unverified, a flipped bit is a wrong number that nobody notices.
        return pq.ParquetFile(
            self._stream or self._file,
            metadata=footer,
            pre_buffer=self._stream is not None,
            page_checksum_verification=True,
        )

    def rest(self) -> None:
        """Close what only the row group needs that was read last: some 300 KB of 40 columns."""
        if isinstance(self.footer, SlicedFooter):
            self._close_parquet()

    def close(self) -> None:
        self._close_parquet(force=True)
        self._close_stream()

    def _close_parquet(self, force: bool = False) -> None:
        parquet, self._parquet = self._parquet, None
        if parquet is not None:
            # Of a connection that is broken anyway; and a stream is needed for the next one.
            with contextlib.suppress(Exception):
                parquet.close(force=force or self._stream is None)

    def _close_stream(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(Exception):
                self._stream.close()


def _other_rows(num_rows: int, group: RowGroup, where: dict[str, object]) -> DataError:
    message = f"the row group has {num_rows} rows, not {group.num_rows} as planned"
    return DataError(message, where=where, hint=_CHANGED)


def _problem(schema: pa.Schema, columns: Sequence[Wanted]) -> str | None:
    kinds = {field.name: field.type for field in schema}
    for column in columns:
        if column.name not in kinds:
            return f"column {column.name!r} is missing"
        problem = type_problem(column, kinds[column.name])
        if problem:
            return problem
    return None


def _column_numbers(metadata: pq.FileMetaData, columns: Sequence[Wanted]) -> list[int]:
    flat = {column.name for column in columns if not column.is_list}
    lists = {column.name for column in columns if column.is_list}
    return [
        number
        for number in range(metadata.num_columns)
        if column_of_leaf(metadata.schema.column(number).path, flat, lists)
    ]


def _cells(column: Wanted, values: pa.ChunkedArray, where: dict[str, object]) -> NDArray[Any]:
    if values.null_count:
        values = _without_nulls(column, values, where)
    array = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    cells: NDArray[Any] = _plain(array).to_numpy(zero_copy_only=False)
    return cells


def _plain(array: pa.Array) -> pa.Array:
    """Dates as whole numbers: days since 1970, or milliseconds."""
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_date64(array.type) else array


def _without_nulls(
    column: Wanted, values: pa.ChunkedArray, where: dict[str, object]
) -> pa.ChunkedArray:
    if column.fill is None:
        raise null_error(column, int(np.flatnonzero(values.is_null().to_numpy())[0]), where)
    values = pa.chunked_array([_plain(chunk) for chunk in values.chunks])
    kind = _type_with_room(column, values.type)
    return pc.fill_null(values.cast(kind, safe=False), pa.scalar(column.fill, kind))


def _type_with_room(column: Wanted, kind: pa.DataType) -> pa.DataType:
    """A type for the column's values and for what nulls become: 0.5 is no int32, 300 no int8."""
    if column.kind == "id":
        return kind if kind.bit_width >= 32 else pa.int32()
    return kind if kind == pa.float64() else pa.float32()


def null_error(column: Wanted, row: int, where: dict[str, object]) -> DataError:
    """What to raise about the first null of a column without a fill value.

    Args:
        column: The column.
        row: The null's row in the row group.
        where: File and row group.
    """
    return DataError(
        f"column {column.name!r} holds a null",
        where=where | {"row in the group": row, "column": column.name},
        hint="Fill the missing values when the table is prepared, or let the loader do it: "
        "fill_null_id for ids, fill_null_value for numbers.",
    )


def _lists(column: Wanted, values: pa.ChunkedArray, where: dict[str, object]) -> pa.Array:
    """Lists without nulls: a null list is an empty one where nulls are filled."""
    rows = pa.concat_arrays(values.chunks)
    if not pa.types.is_list(rows.type):  # large, or of fixed size
        rows = rows.cast(pa.list_(rows.type.value_type))
    lengths = pc.fill_null(rows.value_lengths(), 0).to_numpy(zero_copy_only=False)
    items = pa.chunked_array([rows.flatten()])
    if rows.null_count and column.fill is None:
        _without_nulls(column, pa.chunked_array([rows]), where)
    if items.null_count and column.fill is None:
        row_of_item = np.repeat(np.arange(len(rows)), lengths)
        row = int(row_of_item[np.flatnonzero(items.is_null().to_numpy())[0]])
        raise DataError(
            f"column {column.name!r} holds a list with a null in it",
            where=where | {"row in the group": row, "column": column.name},
            hint="Drop or fill it when the table is prepared, or set fill_null_id or "
            "fill_null_value.",
        )
    if items.null_count:
        items = _without_nulls(column, items, where)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = items.chunk(0) if items.num_chunks == 1 else pa.concat_arrays(items.chunks)
    return pa.ListArray.from_arrays(pa.array(offsets), _plain(flat))
