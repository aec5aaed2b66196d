"""Row groups of parquet files, read with Arrow."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import DataError, DistrainError
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted, type_problem
from distrain.storage import open_input

_OPEN_FILES_PER_THREAD = 32
_MOST_LISTED = 5


class ArrowReader:
    """Reads row groups, the wanted columns only, from any thread.

    Each thread has its own handle of a file, so that threads don't wait for each other; the handles
    of a file share its footer, which is read once. A thread keeps its 32 latest files open.
    """

    def __init__(self, columns: Sequence[Wanted]):
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]
        self._footers: dict[str, pq.FileMetaData] = {}
        self._own = threading.local()
        self._handles_of_threads: list[OrderedDict[str, _Handle]] = []

    def read(self, group: RowGroup) -> pa.Table:
        """The wanted columns of a row group, in their order.

        Raises:
            DataError: The file cannot be read any more, or is not the one that was planned with.
        """
        where = {"file": group.file, "row group": group.index}
        try:
            table = self._handle(group.file).parquet.read_row_group(
                group.index, columns=self._names, use_threads=False
            )
        except (DistrainError, MemoryError):
            raise
        except Exception as error:  # remote filesystems raise what they like
            lines = str(error).splitlines() or [type(error).__name__]
            raise DataError(
                f"could not read a row group: {lines[0]}",
                where=where | self._damaged_columns(group),
                hint="The file is damaged, or was removed or changed since the run began.",
            ) from error
        self._check(table, group, where)
        return table.select(self._names)

    def _damaged_columns(self, group: RowGroup) -> dict[str, object]:
        """The columns that cannot be read, where others can."""
        damaged = []
        for name in self._names:
            try:
                self._handle(group.file).parquet.read_row_group(group.index, columns=[name])
            except Exception:  # the error is known; now it is about where
                damaged.append(name)
        if len(damaged) == len(self._names):
            return {}
        return {"column": ", ".join(damaged[:_MOST_LISTED])}

    def close(self) -> None:
        """Close all files, those of other threads as well; no thread may be reading."""
        for handles in self._handles_of_threads:
            for handle in handles.values():
                handle.close()
            handles.clear()

    def _check(self, table: pa.Table, group: RowGroup, where: dict[str, object]) -> None:
        problem = None
        if table.num_rows != group.num_rows:
            problem = f"the row group has {table.num_rows} rows, not {group.num_rows} as planned"
        for column in self._columns:
            if column.name not in table.schema.names:
                problem = problem or f"column {column.name!r} is missing"
            else:
                problem = problem or type_problem(column, table.schema.field(column.name).type)
        if problem:
            hint = "The file was changed since its footer was read; start again."
            raise DataError(problem, where=where, hint=hint)

    def _handle(self, file: str) -> _Handle:
        handles: OrderedDict[str, _Handle] | None = getattr(self._own, "handles", None)
        if handles is None:
            handles = self._own.handles = OrderedDict()
            self._handles_of_threads.append(handles)
        if file not in handles:
            if len(handles) >= _OPEN_FILES_PER_THREAD:
                handles.popitem(last=False)[1].close()
            handles[file] = _Handle(file, self._footers.get(file))
            self._footers[file] = handles[file].parquet.metadata
        handles.move_to_end(file)
        return handles[file]


class _Handle:
    """An open parquet file."""

    def __init__(self, file: str, footer: pq.FileMetaData | None):
        remote = "://" in file
        # Arrow opens local files itself and reads them without holding Python's lock.
        self._stream: IO[bytes] | None = open_input(file) if remote else None
        try:
            source: Any = self._stream or file
            # Unverified, a flipped bit is a wrong number that nobody notices.
            self.parquet = pq.ParquetFile(
                source, metadata=footer, pre_buffer=remote, page_checksum_verification=True
            )
        except BaseException:
            self._close_stream()
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.parquet.close(force=True)
        self._close_stream()

    def _close_stream(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
