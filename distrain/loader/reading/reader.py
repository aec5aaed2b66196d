"""The protocol of readers of row groups, and readers that wrap another one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.errors import DataError, Unavailable
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.storage.identity import size_as_version
from distrain.storage.os_errors import reading_hint
from distrain.storage.retrying import is_transient, with_retries
from distrain.storage.urls import is_remote


@dataclass(frozen=True)
class DecodedColumns:
    """A row group's wanted columns in host memory, in the order of `WantedColumn`."""

    # one array per flat column, `[rows]`, of any int, float or bool dtype, without nulls,
    # C-contiguous. They may be unaligned and may lie in a buffer that the reader uses again:
    # they hold until the same thread reads the next row group.
    cells: tuple[NDArray[Any], ...]
    # one `pa.ListArray` per list column, after the flat ones, without nulls at any level
    lists: tuple[pa.Array, ...] = ()
    bytes_read: int = 0  # compressed bytes of the columns read


def taken_rows(part: DecodedColumns, group: RowGroup) -> DecodedColumns:
    """The rows that are taken of those that were read."""
    rows = group.taken
    if rows is None:
        return part
    cells = tuple(np.take(column, rows) for column in part.cells)
    return replace(part, cells=cells, lists=tuple(column.take(rows) for column in part.lists))


def join_decoded(parts: Iterable[DecodedColumns]) -> DecodedColumns:
    """A row group's columns from its parts, whose memory must stay valid together."""
    kept = tuple(parts)
    return DecodedColumns(
        tuple(column for part in kept for column in part.cells),
        tuple(column for part in kept for column in part.lists),
        sum(part.bytes_read for part in kept),
    )


def parts_after(
    parts: Iterable[DecodedColumns], cells: int, lists: int
) -> Iterator[DecodedColumns]:
    """Parts of a row group without its first `cells` flat columns and its first `lists` lists."""
    for part in parts:
        some_cells, some_lists = part.cells[cells:], part.lists[lists:]
        cells = max(0, cells - len(part.cells))
        lists = max(0, lists - len(part.lists))
        if some_cells or some_lists:
            yield replace(part, cells=some_cells, lists=some_lists)


class Expected:
    """What a reader was told that it will be asked for; here one that makes no use of it."""

    def passed(self, count: int) -> None:
        """Tell that the first `count` row groups have been loaded, or are not needed."""

    def close(self) -> None:
        """Tell that no others will be asked for."""


class Reader(Protocol):
    """Reads row groups, the wanted columns only, from any thread.

    A reader has `read` or `iter_columns` of its own and inherits the other. One that
    `distrain.jobs.spec.data.READERS` names is a `TableReader` too.
    """

    def read(self, group: RowGroup) -> DecodedColumns:
        """The wanted columns of the rows that are taken of a row group.

        Raises:
            DataError: The row group cannot be read, or is not the planned one; the error names
                file, row group and, where it can, the column.
            Unavailable: The storage does not answer; another try opens the file anew.
        """
        return join_decoded(self.iter_columns(group))

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        """The same, some columns at a time, in their order: flat ones first.

        A part stays valid until the next one is requested. A reader that decodes yields few columns
        at a time, so that they are still in the processor's cache when they are used.
        """
        yield self.read(group)

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        """Take note of the row groups that will be asked for, in this order.

        `None` stands for one that somebody else gives. The iterator may be advanced in any thread,
        one at a time, and waits for nothing. `is_held` tells of others that somebody else gives,
        which may take long; it is called in any thread, by several at a time. A reader that looks
        ahead holds what it reads until the row group is asked for or passed.
        """
        return Expected()

    def close(self) -> None:
        """Release all files and buffers; no thread may be reading."""
        ...


class TableReader(Protocol):
    """What a loader asks a class of `distrain.jobs.spec.data.READERS`."""

    @classmethod
    def of(
        cls, columns: Sequence[WantedColumn], options: LoaderOptions, open_groups: int
    ) -> Reader:
        """A reader that decodes slices of so many row groups at a time; none that is `on_gpu`."""
        ...

    @classmethod
    def why_not(
        cls, table: Table, columns: Sequence[WantedColumn], device_type: str, has_cache: bool
    ) -> str | None:
        """Why it cannot serve a table for batches on `"cpu"` or `"cuda"`; `None` if it can."""
        ...


class _Wrapper(Reader):
    def __init__(self, inner: Reader):
        self._inner = inner

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        return self._inner.iter_columns(group)

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        return self._inner.expect(groups, is_held)

    def close(self) -> None:
        self._inner.close()


class RetryingReader(_Wrapper):
    """Reads a row group again for `retry_s` where the storage does not answer, column by column."""

    def __init__(self, inner: Reader, retry_s: float):
        super().__init__(inner)
        self._retry_s = retry_s

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        parts = self._inner.iter_columns(group)
        cells = lists = 0

        def following() -> DecodedColumns | None:
            nonlocal parts
            try:
                return next(parts, None)
            except BaseException:  # which ends a generator: the next try needs a new one
                parts = parts_after(self._inner.iter_columns(group), cells, lists)
                raise

        while (part := with_retries(following, group.where, self._retry_s)) is not None:
            yield part
            cells, lists = cells + len(part.cells), lists + len(part.lists)


_Version = tuple[int, int, int, int]


class SameFilesReader(_Wrapper):
    """Passes on row groups as long as local files are those that were read first.

    Else rows of two versions of a file would meet. Each file's status is compared before and after
    each row group, whether its rows come from the file or a cache; URLs have versions of their own.
    """

    def __init__(self, inner: Reader):
        super().__init__(inner)
        self._first: dict[str, _Version] = {}

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        if is_remote(group.file):
            yield from self._inner.iter_columns(group)
            return
        self._check(group)
        try:
            yield from self._inner.iter_columns(group)
        except DataError:
            self._check(group)  # if the file changed as well, that is the reason
            raise
        self._check(group)

    def _check(self, group: RowGroup) -> None:
        try:
            status = os.stat(group.file)
        except OSError as error:
            hint = "The file was removed or changed since the run began."
            raise unreadable(group, error, str(error.strerror), hint) from error
        is_local = group.version.endswith(" bytes")
        if is_local and group.version != size_as_version(status.st_size):
            raise another_version(group.where)
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._first.setdefault(group.file, version) != version:
            raise another_version(group.where)


def unreadable(
    group: RowGroup, error: Exception, reason: str, hint: str, **more: object
) -> DataError | Unavailable:
    """What to raise where a row group could not be read: `Unavailable` if another try may help."""
    message = f"could not read a row group: {reason}"
    if is_transient(error):
        return Unavailable(message, where=group.where)
    return DataError(message, where=group.where | more, hint=reading_hint(error, hint))


def another_version(where: Mapping[str, object]) -> DataError:
    return DataError(
        "the file was replaced or written to since it was first read",
        where=where,
        hint="Start again; a run must not mix two versions of a file.",
    )


class SharedReader:
    """One reader for all epochs of a loader; its files are closed when no epoch uses it."""

    def __init__(self, make: Callable[[], Reader]):
        self._make = make
        self._reader: Reader | None = None
        self._users = 0
        self._lock = threading.Lock()

    def lease(self) -> Reader:
        with self._lock:
            if self._reader is None:
                self._reader = self._make()
            self._users += 1
            return _Lease(self._reader, self._give_back)

    def _give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._reader is not None:
                self._reader.close()


class _Lease(_Wrapper):
    """A reader that other epochs may be using, too."""

    def __init__(self, reader: Reader, give_back: Callable[[], None]):
        super().__init__(reader)
        self._give_back: Callable[[], None] | None = give_back

    def close(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
