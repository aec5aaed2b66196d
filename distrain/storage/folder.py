"""Folders on any fsspec filesystem, for reading and writing.

Every failure is an `OSError`, also on filesystems with exceptions of their own;
`FileNotFoundError` means that a file is missing. On local disks files are synced after writing.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from distrain.storage.os_errors import only_os_errors
from distrain.storage.unfinished import partial_name
from distrain.storage.urls import check_url, is_remote

PAGE_BYTES = 4096  # size of a memory page, a multiple of every disk's block size

SYNC_BYTES = 1 << 30
"""Bytes written through the page cache between two syncs; one sync at the end would take long."""

# Errors of filesystems without direct writes.
_CANNOT_WRITE_PAGES = {errno.EINVAL, errno.ENOTSUP}

# Errors of filesystems, such as some in user space, that cannot sync folders.
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
        """Write the whole pages of `content` with direct I/O, without a copy to the page cache.

        Returns the number of bytes written: 0 if there is no whole page, if the memory or the place
        in the file is not aligned to pages, or if the filesystem has no direct writes.
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
        """Fill `target` with the file's bytes from `offset` on.

        Returns the number of bytes read, less than `len(target)` only at the end of the file.
        """
        self._handle.seek(offset)
        done = 0
        while done < len(target):
            count = self._handle.readinto(target[done:])
            if not count:
                break
            done += count
        return done


class _LocalFolder:
    """A folder of this machine; it may be missing until something is written to it."""

    local = True

    def __init__(self, path: Path):
        self._path = path

    @property
    def url(self) -> str:
        return str(self._path)

    def sub(self, name: str) -> "Folder":
        return _LocalFolder(self._path / name)

    def folders(self) -> list[str]:
        """Return the names of the subfolders, sorted; an empty list if the folder is missing."""
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_dir())
        except FileNotFoundError:
            return []

    def files(self) -> list[str]:
        """Return the names of the files, sorted; an empty list if the folder is missing."""
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())
        except FileNotFoundError:
            return []

    def make(self) -> None:
        """Create the folder and its parents if missing; does nothing on an object store."""
        self._path.mkdir(parents=True, exist_ok=True)

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator["FolderFile"]:
        with open(self._path / name, "rb", buffering=0) as handle:
            yield _LocalFile(handle)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator["FolderFile"]:
        """Context manager of a large new file, synced at the end.

        After an error, a part of the file may remain.
        """
        with open(self._path / name, "wb", buffering=0) as handle:
            yield _LocalFile(handle)
            os.fsync(handle.fileno())

    def put(self, name: str, content: bytes) -> None:
        """Write a small file atomically; an existing file is replaced."""
        partial = partial_name(self._path / name)
        try:
            partial.write_bytes(content)
            sync_path(partial)
            partial.rename(self._path / name)
            self.sync()
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def rename(self, name: str, new_name: str) -> None:
        (self._path / name).rename(self._path / new_name)
        self.sync()

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Sync the folder itself, so that the names of its files survive a power failure."""
        try:
            sync_path(self._path)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_FOLDERS:
                raise

    def remove(self, *, first: Sequence[str] = ()) -> None:
        """Remove the folder if it exists, and in it the files `first` before all others."""
        for name in first:
            (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path)


def _address(content: memoryview) -> int:
    import numpy as np  # imported here, since most callers of this module do not need it

    return np.frombuffer(content, np.uint8).ctypes.data


# Bytes sent to an object store in one part of an upload, which has at most 10,000 parts.
_PART_BYTES = 64 << 20
# Bytes of one range request; several are in flight at once.
_RANGE_BYTES = 8 << 20
# Object stores have no folders: fsspec would create a bucket instead.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"}


class _RemoteFile:
    def __init__(self, filesystem: Any, path: str, handle: Any = None):
        self._filesystem, self._path, self._handle = filesystem, path, handle

    def write(self, content: memoryview) -> None:
        with only_os_errors():
            self._handle.write(content)

    def read_into(self, offset: int, target: memoryview) -> int:
        starts = list(range(offset, offset + len(target), _RANGE_BYTES))
        ends = [*starts[1:], offset + len(target)]
        with only_os_errors():
            parts = self._filesystem.cat_ranges(
                [self._path] * len(starts), starts, ends, on_error="raise"
            )
        done = 0
        for part in parts:
            target[done : done + len(part)] = part
            done += len(part)
        return done


class _RemoteFolder:
    """A folder at a URL, with the methods of `_LocalFolder`."""

    local = False

    def __init__(self, filesystem: Any, path: str, url: str):
        self._filesystem, self._path, self._url = filesystem, path.rstrip("/"), url

    @property
    def url(self) -> str:
        return self._url

    def sub(self, name: str) -> "Folder":
        return _RemoteFolder(self._filesystem, f"{self._path}/{name}", f"{self._url}/{name}")

    def folders(self) -> list[str]:
        return self._names("directory")

    def files(self) -> list[str]:
        return self._names("file")

    def _names(self, kind: str) -> list[str]:
        self._forget()
        try:
            with only_os_errors():
                infos = self._filesystem.ls(self._path, detail=True)
        except FileNotFoundError:
            return []
        names = [info["name"] for info in infos if info["type"] == kind]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def make(self) -> None:
        if self._url.partition("://")[0] not in _OBJECT_STORES:
            with only_os_errors():
                self._filesystem.makedirs(self._path, exist_ok=True)

    def size(self, name: str) -> int:
        self._forget()
        with only_os_errors():
            return int(self._filesystem.info(f"{self._path}/{name}")["size"])

    def read(self, name: str) -> bytes:
        with only_os_errors():
            content: bytes = self._filesystem.cat_file(f"{self._path}/{name}")
        return content

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator["FolderFile"]:
        yield _RemoteFile(self._filesystem, f"{self._path}/{name}")

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator["FolderFile"]:
        path = f"{self._path}/{name}"
        with only_os_errors():
            handle = self._filesystem.open(path, "wb", block_size=_PART_BYTES)
        try:
            yield _RemoteFile(self._filesystem, path, handle)
            with only_os_errors():
                handle.close()
        except BaseException:
            # `close`, which the handle's finalizer calls too, would upload the incomplete file.
            with contextlib.suppress(Exception):
                handle.discard()
            with contextlib.suppress(Exception):
                handle.closed = True
            raise

    def put(self, name: str, content: bytes) -> None:
        with only_os_errors():
            self._filesystem.pipe_file(f"{self._path}/{name}", content)

    def rename(self, name: str, new_name: str) -> None:
        self.put(new_name, self.read(name))
        with only_os_errors():
            self._filesystem.rm_file(f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), only_os_errors():
            self._filesystem.rm_file(f"{self._path}/{name}")

    def sync(self) -> None:
        pass  # an object store persists accepted objects

    def remove(self, *, first: Sequence[str] = ()) -> None:
        self._forget()
        for name in first:
            self.delete(name)
        with contextlib.suppress(FileNotFoundError), only_os_errors():
            self._filesystem.rm(self._path, recursive=True)

    def _forget(self) -> None:
        """Drop fsspec's cached listings, since other processes write to the folder, too."""
        self._filesystem.invalidate_cache()


Folder = _LocalFolder | _RemoteFolder
FolderFile = _LocalFile | _RemoteFile


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL, and the path in it.

    Raises `DataError` for a URL that `check_url` rejects, and `OSError` for other failures.
    """
    check_url(url)
    from fsspec.core import url_to_fs

    with only_os_errors():
        filesystem, path = url_to_fs(url)
    return filesystem, path.rstrip("/")


def open_folder(url: str) -> Folder:
    """Return the folder at a path or URL; raises the errors of `filesystem_of` for remote URLs."""
    if not is_remote(url):
        return _LocalFolder(Path(url))
    if url.startswith(("file://", "local://")):
        return _LocalFolder(Path(url.partition("://")[2]))
    filesystem, path = filesystem_of(url)
    return _RemoteFolder(filesystem, path, url.rstrip("/"))


def sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
