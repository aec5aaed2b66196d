"""A local cache of row groups, as raw values, in front of a slower reader."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distrain.errors import DataError
from distrain.loader.packed.cache_folder import BoundedFolder
from distrain.loader.packed.entry import ENTRY_VERSION, EntryFacts, EntryFile, EntryWriter
from distrain.loader.packed.raw_file import Buffers
from distrain.loader.packed.reader import COLUMNS_AT_A_TIME
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import (
    DecodedColumns,
    Expected,
    Reader,
    join_decoded,
    parts_after,
)
from distrain.storage.identity import file_identity
from distrain.storage.retrying import first_line
from distrain.storage.urls import is_remote

_log = logging.getLogger(__name__)

_OPEN_FILES = 512
_KNOWN_ENTRIES = 1024  # some 10 MB of 40 columns
_SUFFIX = ".rows"
_FORMER_SUFFIX = ".parquet"  # entries of earlier versions make space, too
# A process that is short of these learns nothing about the entry.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True)
class CacheCounters:
    hits: int = 0  # row groups that were read from the cache
    misses: int = 0  # row groups that the inner reader read
    bytes_written: int = 0  # bytes of the entries written
    evictions: int = 0  # entries removed to make space
    corrupt: int = 0  # damaged entries, which were removed; each is a miss as well


class CachingReader(Reader):
    """Caches the row groups that another reader reads.

    An entry is the wanted columns, those of `inner` in its order, of one row group, or slice of a
    large one, written while they are decoded. It serves as long as the source's file, the columns
    and what nulls become are the same. Any number of threads and processes may use a folder, which
    may serve many tables, at once. It is on a local disk and made if missing; where its entries
    exceed `max_bytes`, the least recently used are removed first.

    The cache never makes a run fail. Where an entry is gone or damaged, the inner reader reads;
    where none can be written, that is logged once and the run goes on without new ones. Values that
    training refuses are kept as they are, or not at all, so the error is the same as without a
    cache.

    What `read` returns stays valid until the same thread reads again, as with `PackedReader`.
    `fingerprint_of` gives a file's identity and version by its path; where that is `None`, its row
    groups are not cached. For a URL it is called once, and again before an entry is written.
    """

    def __init__(
        self,
        inner: Reader,
        columns: Sequence[WantedColumn],
        directory: str | Path,
        max_bytes: int,
        fingerprint_of: Callable[[str], str | None] = file_identity,
    ):
        self._inner = inner
        self._columns = tuple(columns)
        # An entry holds the constant columns too, so that it is read with nothing to add.
        self._policy = repr([(c.name, c.kind, c.is_list, c.fill_null) for c in columns])
        self._folder = BoundedFolder(Path(directory), max_bytes, (_SUFFIX, _FORMER_SUFFIX))
        self._fingerprint_of = fingerprint_of
        self._remote: dict[str, str | None] = {}  # to ask a server may take long
        self._buffers = Buffers()
        self._files: OrderedDict[str, EntryFile] = OrderedDict()
        self._known: OrderedDict[str, EntryFacts] = OrderedDict()
        self._lock = threading.Lock()
        self._counters = CacheCounters()
        self._can_write = True

    @property
    def counters(self) -> CacheCounters:
        return self._counters

    def read(self, group: RowGroup) -> DecodedColumns:
        return join_decoded(self._parts(group, max(1, len(self._columns)), whole=True))

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        return self._parts(group, COLUMNS_AT_A_TIME, whole=False)

    def _parts(self, group: RowGroup, at_a_time: int, *, whole: bool) -> Iterator[DecodedColumns]:
        def source() -> Iterator[DecodedColumns]:
            self._count(misses=1)
            return iter([self._inner.read(group)]) if whole else self._inner.iter_columns(group)

        fingerprint = self._first_fingerprint(group)
        if fingerprint is None:
            yield from source()
            return
        name = self._entry_name(fingerprint, group)
        cells = lists = 0
        for part in self._found(name, group, at_a_time):
            yield part
            cells, lists = cells + len(part.cells), lists + len(part.lists)
        if cells + lists == len(self._columns):
            self._count(hits=1)
            self._folder.touch(name)
            return
        # An entry that turns out to be damaged gave columns that were whole.
        yield from parts_after(self._keeping(source(), name, group, fingerprint), cells, lists)

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        return self._inner.expect(
            groups, lambda group: self._holds(group) or (is_held is not None and is_held(group))
        )

    def _holds(self, group: RowGroup) -> bool:
        fingerprint = self._first_fingerprint(group)
        if fingerprint is None:
            return False
        return os.path.exists(self._folder.path / self._entry_name(fingerprint, group))

    def close(self) -> None:
        with self._lock:
            self._files.clear()
        self._buffers = Buffers()
        self._inner.close()

    def _first_fingerprint(self, group: RowGroup) -> str | None:
        if not is_remote(group.file):
            return self._fingerprint(group)
        if group.file not in self._remote:
            self._remote[group.file] = self._fingerprint(group)
        return self._remote[group.file]

    def _fingerprint(self, group: RowGroup) -> str | None:
        try:
            return self._fingerprint_of(group.file)
        except (OSError, DataError):
            return None  # the inner reader will report what is wrong with the file

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
        if group.selection:  # of its entry each row is one that is taken
            parts += (group.selection.digest,)
        key = repr((parts, self._policy)).encode()
        return hashlib.blake2b(key, digest_size=16).hexdigest() + _SUFFIX

    def _found(self, name: str, group: RowGroup, at_a_time: int) -> Iterator[DecodedColumns]:
        """An entry's columns; none, or not all, if it is not there or cannot be used."""
        inode = None
        # An entry is a row group of its own.
        own = replace(group, index=0, slice=None, selection=None)
        try:
            file = self._file(name, group.num_rows)
            inode = file.identity[1]
            yield from file.iter_parts(file.layout, own, self._buffers, at_a_time)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._forget(name)  # it was never written, or was removed to make space
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
                known = self._known.pop(name, None)
                file = EntryFile(str(self._folder.path / name), self._columns, num_rows, known)
                self._files[name] = file
                self._known[name] = EntryFacts(file.identity, file.layout)
                if len(self._known) > _KNOWN_ENTRIES:
                    self._known.popitem(last=False)
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            self._files.move_to_end(name)
            return file

    def _forget(self, name: str) -> None:
        with self._lock:
            self._files.pop(name, None)
            self._known.pop(name, None)

    def _drop(self, name: str, inode: int | None, error: Exception) -> None:
        self._forget(name)
        self._folder.remove(name, inode)
        if not self._counters.corrupt:  # logged once, and counted each time
            reason = first_line(error)
            _log.warning("dropped a damaged entry of the cache %s: %s", self._folder.path, reason)
        self._count(corrupt=1)

    def _keeping(
        self, parts: Iterator[DecodedColumns], name: str, group: RowGroup, fingerprint: str
    ) -> Iterator[DecodedColumns]:
        with contextlib.ExitStack() as stack:
            partial, entry = self._begin(stack)
            for part in parts:
                if entry is not None and not self._add(entry, part):
                    entry = None
                yield part
            # A file that was replaced meanwhile must not become an entry of its former version.
            if entry is not None and self._fingerprint(group) == fingerprint:
                self._finish(entry, partial, name)

    def _begin(self, stack: contextlib.ExitStack) -> tuple[Path, EntryWriter | None]:
        partial = self._folder.path
        if not self._can_write:
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
            first, self._can_write = self._can_write, False
        if first:
            message = "the cache in %s gets no more entries, the run goes on without: %s"
            _log.warning(message, self._folder.path, reason)

    def _count(self, **more: int) -> None:
        with self._lock:
            now = self._counters
            self._counters = replace(now, **{k: getattr(now, k) + n for k, n in more.items()})
