"""A local cache of row groups, in the fast layout, in front of a slower reader."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.packed.cells import exact_cells
from distrain.loader.packed.file import Buffers, PackedFile
from distrain.loader.packed.folder import BoundedFolder
from distrain.loader.packed.layout import FORMAT_VERSION
from distrain.loader.packed.reader import check_flat
from distrain.loader.packed.writer import PackedWriter
from distrain.loader.reader import Decoded, Reader
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted
from distrain.storage.identity import file_identity

_log = logging.getLogger(__name__)

_OPEN_FILES = 512
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class CacheCounters:
    """What a cache did since it was made, in this process.

    Attributes:
        hits: Row groups that came out of the cache.
        misses: Row groups that the inner reader had to read.
        bytes_written: Size of the entries written.
        evictions: Entries removed to make room.
        corrupt: Entries that were damaged, and removed; each is a miss as well.
    """

    hits: int = 0
    misses: int = 0
    bytes_written: int = 0
    evictions: int = 0
    corrupt: int = 0


class CachingReader:
    """Keeps the row groups that a reader read, and takes them from there the next time.

    An entry is a packed file of one row group with the wanted columns only. It is found again as
    long as the source's file, the columns and what nulls become are the same. Any number of threads
    and processes may use a folder at once.

    The cache never makes a run fail: where an entry is gone or damaged, the inner reader reads;
    where none can be written, that is logged once and the run goes on without new ones. Values that
    training will refuse are not kept, so that the error comes as it would without a cache.

    What `read` returns holds until the same thread reads again, as with `PackedReader`.

    Args:
        inner: Reads what is not in the cache.
        columns: What `inner` reads, in its order; flat columns only.
        directory: A folder on a local disk; made if missing. It may serve many tables.
        max_bytes: Bound of the entries' total size. What was not used for longest goes first.
        fingerprint_of: A file's identity and version by its path; `None` if there is no telling,
            then its row groups are not kept. By default `file_identity`. Of a URL it is asked once,
            and again when an entry is about to be kept.

    Raises:
        SchemaError: A list column is wanted.
    """

    name = "cached"

    def __init__(
        self,
        inner: Reader,
        columns: Sequence[Wanted],
        directory: str | Path,
        max_bytes: int,
        fingerprint_of: Callable[[str], str | None] = file_identity,
    ):
        check_flat(columns, "caches")
        self._inner = inner
        self._columns = tuple(columns)
        # An entry holds the constant columns too, so that it is read with nothing to add.
        self._policy = repr([(c.name, c.kind, c.fill) for c in columns])
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
        """What happened so far."""
        return self._counters

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group.

        Raises:
            DataError: The inner reader could not read it.
        """
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
        # A file that was replaced meanwhile must not become an entry under its former name.
        if self._can_write and self._fingerprint(group) == fingerprint:
            self._keep(name, decoded, fingerprint)
        return decoded

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, in one part."""
        yield self.read(group)

    def close(self) -> None:
        """Close all files and the inner reader; no thread may be reading."""
        with self._lock:
            self._files.clear()
        self._buffers = Buffers()
        self._inner.close()

    def _first_fingerprint(self, group: RowGroup) -> str | None:
        if "://" not in group.file:
            return self._fingerprint(group)
        if group.file not in self._remote:
            self._remote[group.file] = self._fingerprint(group)
        return self._remote[group.file]

    def _fingerprint(self, group: RowGroup) -> str | None:
        try:
            return self._fingerprint_of(group.file)
        except (OSError, DataError):
            return None  # the inner reader will say what is wrong with the file

    def _entry_name(self, fingerprint: str, group: RowGroup) -> str:
        parts = (FORMAT_VERSION, fingerprint, group.index, group.num_rows, group.constants)
        key = repr((parts, self._policy)).encode()
        return hashlib.blake2b(key, digest_size=16).hexdigest() + _SUFFIX

    def _look_up(self, name: str, group: RowGroup) -> Decoded | None:
        """An entry's values, or `None` if it is not there or cannot be used."""
        inode = None
        try:
            file = self._file(name)
            inode = file.identity[1]
            layout = file.layout(0, group.num_rows, self._columns)
            cells = file.read(layout, 0, self._buffers.take(layout.num_bytes))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            self._forget(name)  # it was never written, or is gone since somebody needed room
            return None
        except (DataError, OSError) as error:
            self._drop(name, inode, error)
            return None
        self._folder.touch(name)
        return Decoded(cells, bytes_read=layout.num_bytes)

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
        if not self._counters.corrupt:  # told once; how often it happens is counted
            reason = str(error).splitlines()[0]
            _log.warning("dropped a damaged entry of the cache %s: %s", self._folder.path, reason)
        self._count(corrupt=1)

    def _keep(self, name: str, decoded: Decoded, fingerprint: str) -> None:
        cells = _exact(decoded.cells, self._columns)
        if cells is None:
            return
        if sum(column.nbytes for column in cells) > self._folder.max_bytes:
            self._give_up(f"max_bytes={self._folder.max_bytes} is less than one row group")
            return
        try:
            with self._folder.partial_file() as partial:
                with PackedWriter(partial, self._columns, fingerprint, for_others=False) as writer:
                    writer.write(cells)
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


def _exact(
    cells: Sequence[NDArray[Any]], columns: Sequence[Wanted]
) -> tuple[NDArray[Any], ...] | None:
    found = []
    for values, column in zip(cells, columns, strict=True):
        exact = exact_cells(values, column)
        if exact is None:
            return None
        found.append(exact)
    return tuple(found)
