"""Stores decoded row groups in a folder, and reads them instead of the source files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distrain.errors import DataError
from distrain.loader.cache.bounded_folder import BoundedFolder
from distrain.loader.cache.entry import ENTRY_VERSION, EntryFile, EntryWriter
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns, Reader
from distrain.storage.identity import file_identity
from distrain.storage.retrying import first_line
from distrain.storage.urls import is_remote

_log = logging.getLogger(__name__)

_OPEN_FILES = 512
_SUFFIX = ".rows"
# Errors that mean a lack of resources, not a damaged entry.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class CacheCounters:
    hits: int = 0  # row groups that were read from the cache
    misses: int = 0  # row groups that were read from the source files
    bytes_written: int = 0  # bytes of the entries written
    evictions: int = 0  # entries removed to make space
    corrupt: int = 0  # damaged entries, which were removed; each is also a miss


class RowGroupCache:
    """Entries of row groups in a folder, written while the row groups are decoded.

    An entry has the wanted columns of one row group, or of a slice of a large one. It is used as
    long as the source file, the columns and the replacements of nulls are the same. Any number of
    threads and processes may use a folder, for many tables. The folder must be on a local disk, and
    is created if missing. If a new entry would exceed `max_bytes`, the least recently used entries
    are removed.

    The cache never makes a run fail. If an entry is missing or damaged, the source file is read. If
    entries cannot be written, this is logged once, the reason is stored in `problem`, and the run
    continues without new entries. Values that training rejects are stored unchanged or not at all,
    so errors are the same as without a cache.

    If a file's identity and version are unknown, its row groups are not cached. For a URL they are
    requested once, and again before an entry is written.
    """

    def __init__(self, columns: Sequence[WantedColumn], directory: str | Path, max_bytes: int):
        self._columns = tuple(columns)
        # All columns: an entry also has constant columns (from folders' names).
        self._policy = repr([(c.name, c.kind, c.is_list, c.fill_null) for c in columns])
        self._folder = BoundedFolder(Path(directory), max_bytes, (_SUFFIX,))
        # fingerprints by URL, since a request to a server may take long
        self._remote: dict[str, str | None] = {}
        self._files: OrderedDict[str, EntryFile] = OrderedDict()
        self._lock = threading.Lock()
        self._counters = CacheCounters()
        self.problem = ""  # why no more entries are written; empty if they are

    @property
    def counters(self) -> CacheCounters:
        return self._counters

    def read(self, group: RowGroup, first: int, reader: Reader) -> Iterator[DecodedColumns]:
        """Yield a row group's columns from number `first` on, from its entry or from `reader`.

        If there is no entry and `first` is 0, the columns are also written to a new entry. Parts
        stay valid as for `Reader.read`.
        """
        fingerprint = self.fingerprint(group)
        name = "" if fingerprint is None else self._entry_name(fingerprint, group)
        for part in self._found(name, group.num_rows, first) if name else ():
            yield part
            first += part.num_columns
        if first == len(self._columns):
            self._count(hits=1)
            self._folder.touch(name)
            return
        self._count(misses=1)
        parts = reader.read(group, self._columns[first:])
        # If the first columns came from a damaged entry, a new entry is written only at the next
        # read of the row group.
        if fingerprint is None or first:
            yield from parts
        else:
            yield from self._keeping(parts, name, group, fingerprint)

    def holds(self, group: RowGroup) -> bool:
        fingerprint = self.fingerprint(group)
        if fingerprint is None:
            return False
        return os.path.exists(self._folder.path / self._entry_name(fingerprint, group))

    def close(self) -> None:
        """Close all files; no thread may read meanwhile. The cache may be used again."""
        with self._lock:
            for file in self._files.values():
                file.close()

    def fingerprint(self, group: RowGroup) -> str | None:
        """Return the identity and version of a row group's file; `None` if they are unknown."""
        if not is_remote(group.file):
            return self._fingerprint_now(group)
        if group.file not in self._remote:
            self._remote[group.file] = self._fingerprint_now(group)
        return self._remote[group.file]

    def _fingerprint_now(self, group: RowGroup) -> str | None:
        try:
            return file_identity(group.file)
        except (OSError, DataError):
            return None  # the reader will report what is wrong with the file

    def _entry_name(self, fingerprint: str, group: RowGroup) -> str:
        parts: tuple[object, ...] = (
            ENTRY_VERSION,
            fingerprint,
            group.index,
            group.num_rows,
            group.constants,
        )
        if group.slice:
            parts += (group.slice,)
        if group.selection:  # the entry has the selected rows only
            parts += (group.selection.digest,)
        key = repr((parts, self._policy)).encode()
        return hashlib.blake2b(key, digest_size=16).hexdigest() + _SUFFIX

    def _found(self, name: str, num_rows: int, first: int) -> Iterator[DecodedColumns]:
        """Yield the columns of the entry `name` from number `first` on.

        Yields fewer columns, or none, if the entry is missing or damaged.
        """
        inode = None
        try:
            file = self._file(name, num_rows)
            inode = file.identity[1]
            yield from file.read(first)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._forget(name)  # the entry was never written, or was evicted
        except (DataError, OSError) as error:
            if getattr(error, "errno", None) in _SHORTAGES:
                self._forget(name)
            else:
                self._drop(name, inode, error)

    def _file(self, name: str, num_rows: int) -> EntryFile:
        with self._lock:
            file = self._files.get(name)
            # Another process may have removed the entry and written it again.
            if file is None or not file.is_unchanged():
                file = EntryFile(str(self._folder.path / name), self._columns, num_rows)
                self._files[name] = file
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            file.open()
            self._files.move_to_end(name)
            return file

    def _forget(self, name: str) -> None:
        with self._lock:
            self._files.pop(name, None)

    def _drop(self, name: str, inode: int | None, error: Exception) -> None:
        self._forget(name)
        self._folder.remove(name, inode)
        if not self._counters.corrupt:  # logged once, but counted each time
            reason = first_line(error)
            _log.warning("dropped a damaged entry of the cache %s: %s", self._folder.path, reason)
        self._count(corrupt=1)

    def _keeping(
        self, parts: Iterator[DecodedColumns], name: str, group: RowGroup, fingerprint: str
    ) -> Iterator[DecodedColumns]:
        """Yield a row group's decoded columns unchanged, and also write them to a new entry.

        If writing fails, or the source file was replaced meanwhile, no entry is added, and no error
        is raised.
        """
        with contextlib.ExitStack() as stack:
            partial, entry = self._begin(stack)
            for part in parts:
                if entry is not None and not self._add(entry, part):
                    entry = None
                yield part
            # If the file was replaced meanwhile, its rows must not become an entry of its former
            # version.
            if entry is not None and self._fingerprint_now(group) == fingerprint:
                self._finish(entry, partial, name)

    def _begin(self, stack: contextlib.ExitStack) -> tuple[Path, EntryWriter | None]:
        partial = self._folder.path
        if self.problem:
            return partial, None
        try:
            partial = stack.enter_context(self._folder.partial_file())
            entry = EntryWriter(partial, self._columns)
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return partial, None
        stack.callback(entry.close)
        return partial, entry

    def _add(self, entry: EntryWriter, part: DecodedColumns) -> bool:
        try:
            kept = entry.add(part)
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return False
        if entry.num_bytes > self._folder.max_bytes:
            self._give_up(f"max_bytes={self._folder.max_bytes} is less than one row group")
            return False
        return kept

    def _finish(self, entry: EntryWriter, partial: Path, name: str) -> None:
        try:
            entry.finish()
            entry.close()
            size = partial.stat().st_size
            removed = self._folder.add(partial, name)
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return
        if removed is not None:
            self._count(bytes_written=size, evictions=removed)

    def _give_up(self, reason: str) -> None:
        with self._lock:
            is_first, self.problem = not self.problem, self.problem or reason
        if is_first:
            message = (
                "no more entries are written to the cache in %s; the run continues without them: %s"
            )
            _log.warning(message, self._folder.path, reason)

    def _count(self, **more: int) -> None:
        with self._lock:
            now = self._counters
            self._counters = replace(now, **{k: getattr(now, k) + n for k, n in more.items()})
