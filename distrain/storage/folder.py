"""A folder of files on any filesystem that fsspec knows, written to as well as read.

Whatever goes wrong is an `OSError`, also where a filesystem has errors of its own;
`FileNotFoundError` means that something is not there. On local disks what was written is synced.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from distrain.storage.outputs import _partial_name, _sync

_PART_BYTES = 64 << 20  # what an object store is sent at a time; it takes 10,000 such parts
_RANGE_BYTES = (
    8 << 20
)  # what it is asked for at a time; several such requests are under way at once
# They have no folders, and fsspec would make a bucket instead.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"}


class FileWriter(Protocol):
    """A file that grows at its end."""

    def write(self, content: memoryview) -> None:
        """Append bytes."""


class FileReader(Protocol):
    """A file whose bytes are read from anywhere."""

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` on; fewer bytes are returned only where the file ends."""


class Folder(Protocol):
    """A folder; it may be missing until something is written to it."""

    @property
    def url(self) -> str:
        """Its path or URL."""

    @property
    def local(self) -> bool:
        """Whether it lies on a filesystem of this machine."""

    def sub(self, name: str) -> "Folder":
        """A folder in it."""

    def folders(self) -> list[str]:
        """The names of the folders in it, sorted; none if it is missing itself."""

    def make(self) -> None:
        """Make it, and those above it, where folders are things of their own."""

    def size(self, name: str) -> int:
        """A file's bytes."""

    def read(self, name: str) -> bytes:
        """A whole small file."""

    def reader(self, name: str) -> contextlib.AbstractContextManager[FileReader]:
        """A large file for reading."""

    def writer(self, name: str) -> contextlib.AbstractContextManager[FileWriter]:
        """A large file, new. After an error some of it may be there."""

    def put(self, name: str, content: bytes) -> None:
        """A small file, which appears whole or not at all, and takes the place of an older one."""

    def rename(self, name: str, new_name: str) -> None:
        """Give a small file another name."""

    def sync(self) -> None:
        """Make sure that the names of the files in it survive a loss of power."""

    def remove(self, *, first: Sequence[str] = ()) -> None:
        """Remove it with all that is in it, these files first; nothing happens if it is missing."""


def open_folder(url: str) -> Folder:
    """The folder that a path or URL names.

    Raises:
        OSError: No such filesystem is known, or the package for it is not installed.
    """
    if "://" not in url:
        return _LocalFolder(Path(url))
    if url.startswith(("file://", "local://")):
        return _LocalFolder(Path(url.partition("://")[2]))
    from fsspec.core import url_to_fs

    with _only_os_errors():
        filesystem, path = url_to_fs(url)
    return _RemoteFolder(filesystem, path, url.rstrip("/"))


class _LocalFile:
    def __init__(self, handle: Any):
        self._handle = handle

    def write(self, content: memoryview) -> None:
        done = 0
        while done < len(content):
            done += self._handle.write(content[done:])

    def read_into(self, offset: int, target: memoryview) -> int:
        self._handle.seek(offset)
        done = 0
        while done < len(target):
            count = self._handle.readinto(target[done:])
            if not count:
                break
            done += count
        return done


class _LocalFolder:
    local = True

    def __init__(self, path: Path):
        self._path = path

    @property
    def url(self) -> str:
        return str(self._path)

    def sub(self, name: str) -> Folder:
        return _LocalFolder(self._path / name)

    def folders(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._path) if entry.is_dir())
        except FileNotFoundError:
            return []

    def make(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator[FileReader]:
        with open(self._path / name, "rb", buffering=0) as handle:
            yield _LocalFile(handle)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[FileWriter]:
        with open(self._path / name, "wb", buffering=0) as handle:
            yield _LocalFile(handle)
            os.fsync(handle.fileno())

    def put(self, name: str, content: bytes) -> None:
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
        (self._path / name).rename(self._path / new_name)
        self.sync()

    def sync(self) -> None:
        _sync(self._path)

    def remove(self, *, first: Sequence[str] = ()) -> None:
        for name in first:
            (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path)


class _RemoteFile:
    def __init__(self, filesystem: Any, path: str, handle: Any = None):
        self._filesystem, self._path, self._handle = filesystem, path, handle

    def write(self, content: memoryview) -> None:
        with _only_os_errors():
            self._handle.write(content)

    def read_into(self, offset: int, target: memoryview) -> int:
        starts = list(range(offset, offset + len(target), _RANGE_BYTES))
        ends = [*starts[1:], offset + len(target)]
        with _only_os_errors():
            parts = self._filesystem.cat_ranges(
                [self._path] * len(starts), starts, ends, on_error="raise"
            )
        done = 0
        for part in parts:
            target[done : done + len(part)] = part
            done += len(part)
        return done


class _RemoteFolder:
    local = False

    def __init__(self, filesystem: Any, path: str, url: str):
        self._filesystem, self._path, self._url = filesystem, path.rstrip("/"), url

    @property
    def url(self) -> str:
        return self._url

    def sub(self, name: str) -> Folder:
        return _RemoteFolder(self._filesystem, f"{self._path}/{name}", f"{self._url}/{name}")

    def folders(self) -> list[str]:
        self._forget()
        try:
            with _only_os_errors():
                infos = self._filesystem.ls(self._path, detail=True)
        except FileNotFoundError:
            return []
        found = [info["name"] for info in infos if info["type"] == "directory"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def make(self) -> None:
        if self._url.partition("://")[0] not in _OBJECT_STORES:
            with _only_os_errors():
                self._filesystem.makedirs(self._path, exist_ok=True)

    def size(self, name: str) -> int:
        self._forget()
        with _only_os_errors():
            return int(self._filesystem.info(f"{self._path}/{name}")["size"])

    def read(self, name: str) -> bytes:
        with _only_os_errors():
            content: bytes = self._filesystem.cat_file(f"{self._path}/{name}")
        return content

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator[FileReader]:
        yield _RemoteFile(self._filesystem, f"{self._path}/{name}")

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[FileWriter]:
        path = f"{self._path}/{name}"
        with _only_os_errors():
            handle = self._filesystem.open(path, "wb", block_size=_PART_BYTES)
        try:
            yield _RemoteFile(self._filesystem, path, handle)
            with _only_os_errors():
                handle.close()
        except BaseException:
            # Closing it, which its finalizer does as well, would send what there is.
            with contextlib.suppress(Exception):
                handle.discard()
            with contextlib.suppress(Exception):
                handle.closed = True
            raise

    def put(self, name: str, content: bytes) -> None:
        with _only_os_errors():
            self._filesystem.pipe_file(f"{self._path}/{name}", content)

    def rename(self, name: str, new_name: str) -> None:
        self.put(new_name, self.read(name))
        with _only_os_errors():
            self._filesystem.rm_file(f"{self._path}/{name}")

    def sync(self) -> None:
        pass  # what an object store has taken it keeps

    def remove(self, *, first: Sequence[str] = ()) -> None:
        self._forget()
        for name in first:
            with contextlib.suppress(FileNotFoundError), _only_os_errors():
                self._filesystem.rm_file(f"{self._path}/{name}")
        with contextlib.suppress(FileNotFoundError), _only_os_errors():
            self._filesystem.rm(self._path, recursive=True)

    def _forget(self) -> None:
        """Have the filesystem look again; others write there, too."""
        self._filesystem.invalidate_cache()


@contextlib.contextmanager
def _only_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # each filesystem raises what it likes
        raise OSError(f"{type(error).__name__}: {error}") from error
