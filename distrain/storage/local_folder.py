"""A folder on a filesystem of this machine."""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distrain.storage.folder import FileReader, FileWriter, Folder
from distrain.storage.outputs import _partial_name, _sync

PAGE_BYTES = 4096
"""Of memory, and a multiple of every disk's blocks."""

SYNC_BYTES = 1 << 30
"""Of what went through the page cache: the sync at the end would otherwise wait for all of it."""

# What filesystems without direct writes say.
_CANNOT_WRITE_PAGES = {errno.EINVAL, errno.ENOTSUP}

# What filesystems in user space say that keep folders elsewhere.
_CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


class _LocalFile:
    def __init__(self, handle: Any):
        self._handle = handle
        self._offset = 0
        self._unsynced = 0
        self._direct = hasattr(os, "O_DIRECT")

    def write(self, content: memoryview) -> None:
        past_cache = done = self._write_pages(content) if self._direct else 0
        while done < len(content):
            done += self._handle.write(content[done:])
        self._offset += len(content)
        self._unsynced += len(content) - past_cache
        if self._unsynced >= SYNC_BYTES:
            os.fsync(self._handle.fileno())
            self._unsynced = 0

    def _write_pages(self, content: memoryview) -> int:
        """Hand whole pages to the disk past the page cache, which would copy them once more.

        Returns:
            How many bytes that were; none where memory or file are not aligned to pages, or the
            filesystem cannot do it.
        """
        num_bytes = len(content) - len(content) % PAGE_BYTES
        if not num_bytes or (self._offset | _address(content)) % PAGE_BYTES:
            return 0
        handle = self._handle.fileno()
        flags = fcntl.fcntl(handle, fcntl.F_GETFL)
        done = 0
        try:
            fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT)
            while done < num_bytes and not done % PAGE_BYTES:
                done += os.write(handle, content[done:num_bytes])
        except OSError as error:
            if error.errno not in _CANNOT_WRITE_PAGES:
                raise
            self._direct = False
        finally:
            fcntl.fcntl(handle, fcntl.F_SETFL, flags)
        return done

    def read_into(self, offset: int, target: memoryview) -> int:
        self._handle.seek(offset)
        done = 0
        while done < len(target):
            count = self._handle.readinto(target[done:])
            if not count:
                break
            done += count
        return done


class LocalFolder:
    """A folder of files on this machine; see `Folder`."""

    local = True

    def __init__(self, path: Path):
        self._path = path

    @property
    def url(self) -> str:
        """See `Folder`."""
        return str(self._path)

    def sub(self, name: str) -> Folder:
        """See `Folder`."""
        return LocalFolder(self._path / name)

    def folders(self) -> list[str]:
        """See `Folder`."""
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_dir())
        except FileNotFoundError:
            return []

    def files(self) -> list[str]:
        """See `Folder`."""
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())
        except FileNotFoundError:
            return []

    def make(self) -> None:
        """See `Folder`."""
        self._path.mkdir(parents=True, exist_ok=True)

    def size(self, name: str) -> int:
        """See `Folder`."""
        return (self._path / name).stat().st_size

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        return (self._path / name).read_bytes()

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator[FileReader]:
        """See `Folder`."""
        with open(self._path / name, "rb", buffering=0) as handle:
            yield _LocalFile(handle)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[FileWriter]:
        """See `Folder`."""
        with open(self._path / name, "wb", buffering=0) as handle:
            yield _LocalFile(handle)
            os.fsync(handle.fileno())

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""
        partial = _partial_name(self._path / name)
        try:
            partial.write_bytes(content)
            _sync(partial)
            partial.rename(self._path / name)
            self.sync()
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def rename(self, name: str, new_name: str) -> None:
        """See `Folder`."""
        (self._path / name).rename(self._path / new_name)
        self.sync()

    def delete(self, name: str) -> None:
        """See `Folder`."""
        (self._path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """See `Folder`."""
        try:
            _sync(self._path)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_FOLDERS:
                raise

    def remove(self, *, first: Sequence[str] = ()) -> None:
        """See `Folder`."""
        for name in first:
            (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path)


def _address(content: memoryview) -> int:
    return np.frombuffer(content, np.uint8).ctypes.data
