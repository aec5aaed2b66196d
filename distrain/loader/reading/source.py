"""Reads row groups for a loader, from a cache or reader, with retries and checks of versions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

from distrain.errors import DataError
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import (
    DecodedColumns,
    Expected,
    Reader,
    another_version,
    unreadable,
)
from distrain.storage.identity import size_as_version
from distrain.storage.retrying import with_retries
from distrain.storage.urls import is_remote

_Version = tuple[int, int, int, int]


class Source:
    """Reads the row groups of a table, for all epochs of a loader and from any thread.

    Each user, such as an epoch's backend, opens the source, and closes it once. The reader is
    created when the source is first opened; its files are closed when the last user has closed it.
    """

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        new_reader: Callable[[], Reader],
        retry_s: float,
        cache: RowGroupCache | None = None,
    ):
        self._columns = tuple(columns)
        self._new_reader = new_reader
        self._retry_s = retry_s
        self._cache = cache
        self._reader: Reader | None = None
        self._users = 0
        self._lock = threading.Lock()
        self._versions: dict[str, _Version] = {}  # of local files, when they were first read

    def read(self, group: RowGroup) -> Iterator[DecodedColumns]:
        """Yield a row group's columns, some at a time; see `Reader.read`.

        If the storage does not answer, columns that were not yet yielded are retried for `retry_s`.
        """
        first = 0
        parts = self._parts(group, first)

        def following() -> DecodedColumns | None:
            nonlocal parts
            try:
                return next(parts, None)
            except BaseException:  # a generator that raised is over: the next try needs a new one
                parts = self._parts(group, first)
                raise

        while (part := with_retries(following, group.where, self._retry_s)) is not None:
            yield part
            first += part.num_columns

    def _parts(self, group: RowGroup, first: int) -> Iterator[DecodedColumns]:
        """Yield a row group's columns from number `first` on, some at a time.

        A local file is checked before and after, whether its rows come from the file or from the
        cache: if it has changed, a `DataError` is raised, since rows of two versions must not be
        mixed. The reader checks the versions of remote files.
        """
        assert self._reader is not None
        self._check_version(group)
        try:
            if self._cache is not None:
                yield from self._cache.read(group, first, self._reader)
            else:
                yield from self._reader.read(group, self._columns[first:])
        except DataError:
            self._check_version(group)  # if the file has changed, that is the better error
            raise
        self._check_version(group)

    def _check_version(self, group: RowGroup) -> None:
        if is_remote(group.file):
            return
        try:
            status = os.stat(group.file)
        except OSError as error:
            hint = "The file was removed or changed since the run began."
            raise unreadable(group, error, str(error.strerror), hint) from error
        is_local = group.version.endswith(" bytes")
        if is_local and group.version != size_as_version(status.st_size):
            raise another_version(group.where)
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._versions.setdefault(group.file, version) != version:
            raise another_version(group.where)

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        """Announce the row groups that will be read, in this order; see `Reader.expect`."""
        assert self._reader is not None
        return self._reader.expect(groups, None if self._cache is None else self._cache.holds)

    def open(self) -> Source:
        with self._lock:
            if self._reader is None:
                self._reader = self._new_reader()
            self._users += 1
        return self

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._reader is not None:
                self._reader.close()
                if self._cache is not None:
                    self._cache.close()
