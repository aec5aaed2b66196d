"""Memory-mapped files of a preparation; the kernel reclaims their pages if memory is short."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from distrain.errors import DataError
from distrain.storage.inputs import fetched
from distrain.storage.os_errors import reading_hint
from distrain.storage.urls import is_remote

_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_KEPT = 4096


@dataclass(frozen=True, eq=False)
class MappedFile:
    """A file in mapped memory, for as long as `content` is referenced; no descriptor stays open."""

    content: Any
    path: str

    @classmethod
    def open(cls, path: str | Path) -> MappedFile:
        if not Path(path).stat().st_size:  # an empty file cannot be mapped
            return cls(pa.py_buffer(b""), str(path))
        # Arrow's map, since each map of Python's `mmap` keeps a descriptor open.
        with pa.memory_map(str(path)) as file:
            return cls(file.read_buffer(), str(path))

    @classmethod
    def staged(cls, path: str) -> MappedFile:
        """Map a file of the staging folder; of a remote file, map a temporary local copy.

        Raises:
            DataError: The file cannot be read.
            OutputError: The local copy cannot be written.
        """
        with _readable(path), ExitStack() as opened:
            local = opened.enter_context(fetched(path)) if is_remote(path) else path
            return cls(cls.open(local).content, path)

    @cached_property
    def batches(self) -> list[pa.RecordBatch]:
        """The record batches of an Arrow file; raises a `DataError` if they cannot be read."""
        with _readable(self.path):
            file = pa.ipc.open_file(self.content)
            return [file.get_batch(number) for number in range(file.num_record_batches)]

    @cached_property
    def rows(self) -> pa.Table:
        """All rows of an Arrow file; raises a `DataError` if they cannot be read."""
        with _readable(self.path):
            return pa.ipc.open_file(self.content).read_all()

    def forget(self) -> None:
        """Release the file's pages from this process's memory; they are read again when needed."""
        if self.content.size:
            place, size = ctypes.c_void_p(self.content.address), ctypes.c_size_t(self.content.size)
            _LIBC.madvise(place, size, mmap.MADV_DONTNEED)


@functools.lru_cache(maxsize=_MOST_KEPT)
def kept_mapped(path: str) -> MappedFile:
    """Return a mapped staging file, cached in this process; a remote file is fetched only once.

    Raises the `DataError` of `MappedFile.staged`.
    """
    return MappedFile.staged(path)


def forget_files() -> None:
    """Empty this process's cache of memory-mapped staging files, at the end of a preparation.

    The files on disk stay.
    """
    kept_mapped.cache_clear()


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # Arrow's errors are `ValueError`s
        raise DataError(
            f"a worker's counted or sorted values cannot be read: {error}",
            where={"file": path},
            hint=reading_hint(
                error,
                "All workers must see the folders of output and staging; prepare the files again.",
            ),
        ) from None
