"""A local cache of row groups, in the fast layout, in front of a slower reader."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from distrain.errors import DataError
from distrain.loader.filling import unusable
from distrain.loader.packed.cache_folder import BoundedFolder
from distrain.loader.packed.mark import FORMAT_VERSION
from distrain.loader.packed.packed_file import Buffers, PackedFile
from distrain.loader.packed.writer import MOST_GROUP_ITEMS, Column, PackedWriter, kept_as
from distrain.loader.reading import DecodedColumns, Reader
from distrain.partition import RowGroup, WantedColumn
from distrain.storage import file_identity, is_remote

_log = logging.getLogger(__name__)

_OPEN_FILES = 512
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class CacheCounters:
    """Counts of row groups and entries since the cache was made, in this process.

    Attributes:
        hits: Row groups that were read from the cache.
        misses: Row groups that the inner reader read.
        bytes_written: Bytes of the entries written.
        evictions: Entries removed to make room.
        corrupt: Damaged entries, which were removed; each is a miss as well.
    """

    hits: int = 0
    misses: int = 0
    bytes_written: int = 0
    evictions: int = 0
    corrupt: int = 0


class CachingReader(Reader):
    """Caches the row groups that another reader reads.

    An entry is a packed file of one row group with the wanted columns only. It is found again as
    long as the source's file, the columns and what nulls become are the same. Any number of threads
    and processes may use a folder, which may serve many tables, at once. It is on a local disk and
    made if missing; where its entries exceed `max_bytes`, the least recently used are removed
    first.

    The cache never makes a run fail. Where an entry is gone or damaged, the inner reader reads;
    where none can be written, that is logged once and the run goes on without new ones. Values that
    training refuses are not cached, so the error is the same as without a cache.

    What `read` returns stays valid until the same thread reads again, as with `PackedReader`.

    `columns` are those that `inner` reads, in its order. `fingerprint_of` gives a file's identity
    and version by its path; `None` if they are unknown, then its row groups are not cached. For a
    URL it is called once, and again before an entry is written.
    """

    name = "cached"

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
        self._policy = repr([(c.name, c.kind, c.fill_null) for c in columns])
        self._folder = BoundedFolder(Path(directory), max_bytes, _SUFFIX)
        self._fingerprint_of = fingerprint_of
        self._remote: dict[str, str | None] = {}  # to ask a server may take long
        self._buffers = Buffers()
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        self._lock = threading.Lock()
        self._counters = CacheCounters()
        self._can_write = True

    @property
    def counters(self) -> CacheCounters:
        """The counts so far."""
        return self._counters

    def read(self, group: RowGroup) -> DecodedColumns:
        """The wanted columns of a row group."""
        fingerprint = self._first_fingerprint(group)
        if fingerprint is None:
            self._count(misses=1)
            return self._inner.read(group)
        name = self._entry_name(fingerprint, group)
        found = self._look_up(name, group)
        if found is not None:
            self._count(hits=1)
            return found
        self._count(misses=1)
        decoded = self._inner.read(group)
        # A file that was replaced meanwhile must not become an entry of its former version.
        if self._can_write and self._fingerprint(group) == fingerprint:
            self._keep(name, decoded, fingerprint)
        return decoded

    def close(self) -> None:
        """Close all files and the inner reader; no thread may be reading."""
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
            FORMAT_VERSION,
            fingerprint,
            group.index,
            group.num_rows,
            group.constants,
        )
        if group.slice:
            parts += (group.slice,)
        key = repr((parts, self._policy)).encode()
        return hashlib.blake2b(key, digest_size=16).hexdigest() + _SUFFIX

    def _look_up(self, name: str, group: RowGroup) -> DecodedColumns | None:
        """An entry's values, or `None` if it is not there or cannot be used."""
        inode = None
        try:
            file = self._file(name)
            inode = file.identity[1]
            layout = file.layout(0, group.num_rows, self._columns)
            found = file.read(layout, 0, self._buffers.take(layout.num_bytes))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._forget(name)  # it was never written, or was removed to make room
            return None
        except (DataError, OSError) as error:
            self._drop(name, inode, error)
            return None
        self._folder.touch(name)
        return found

    def _file(self, name: str) -> PackedFile:
        with self._lock:
            file = self._files.get(name)
            # Another process may have removed the entry and written it again.
            if file is None or not file.is_unchanged():
                file = self._files[name] = PackedFile(str(self._folder.path / name))
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            self._files.move_to_end(name)
            return file

    def _forget(self, name: str) -> None:
        with self._lock:
            self._files.pop(name, None)

    def _drop(self, name: str, inode: int | None, error: Exception) -> None:
        self._forget(name)
        self._folder.remove(name, inode)
        if not self._counters.corrupt:  # logged once, and counted each time
            reason = str(error).splitlines()[0]
            _log.warning("dropped a damaged entry of the cache %s: %s", self._folder.path, reason)
        self._count(corrupt=1)

    def _keep(self, name: str, decoded: DecodedColumns, fingerprint: str) -> None:
        kept = []
        for values, column in zip((*decoded.cells, *decoded.lists), self._columns, strict=True):
            if _cannot_be_kept(column, values):
                return
            kept.append(kept_as(column, values))
        if sum(column.nbytes for column in kept) > self._folder.max_bytes:
            self._give_up(f"max_bytes={self._folder.max_bytes} is less than one row group")
            return
        try:
            with self._folder.partial_file() as partial:
                with PackedWriter(partial, self._columns, fingerprint, for_others=False) as writer:
                    writer.write(kept)
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


def _cannot_be_kept(column: WantedColumn, values: Column) -> bool:
    if isinstance(values, pa.ListArray):
        if len(values.flatten()) > MOST_GROUP_ITEMS:
            return True
        values = values.flatten().to_numpy(zero_copy_only=False)
    return bool(unusable(column, values).any())
