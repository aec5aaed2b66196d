"""A folder on a filesystem that fsspec reaches, such as an object store."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from distrain.storage.folder import FileReader, FileWriter, Folder

_PART_BYTES = 64 << 20  # what an object store is sent at a time; it takes 10,000 such parts
_RANGE_BYTES = (
    8 << 20
)  # what it is asked for at a time; several such requests are under way at once
# They have no folders, and fsspec would make a bucket instead.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"}


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


class RemoteFolder:
    """A folder that fsspec reaches; see `Folder`."""

    local = False

    def __init__(self, filesystem: Any, path: str, url: str):
        self._filesystem, self._path, self._url = filesystem, path.rstrip("/"), url

    @classmethod
    def open(cls, url: str) -> Folder:
        """The folder that a URL names."""
        from fsspec.core import url_to_fs

        with _only_os_errors():
            filesystem, path = url_to_fs(url)
        return cls(filesystem, path, url.rstrip("/"))

    @property
    def url(self) -> str:
        """See `Folder`."""
        return self._url

    def sub(self, name: str) -> Folder:
        """See `Folder`."""
        return RemoteFolder(self._filesystem, f"{self._path}/{name}", f"{self._url}/{name}")

    def folders(self) -> list[str]:
        """See `Folder`."""
        return self._names("directory")

    def files(self) -> list[str]:
        """See `Folder`."""
        return self._names("file")

    def _names(self, kind: str) -> list[str]:
        self._forget()
        try:
            with _only_os_errors():
                infos = self._filesystem.ls(self._path, detail=True)
        except FileNotFoundError:
            return []
        found = [info["name"] for info in infos if info["type"] == kind]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def make(self) -> None:
        """See `Folder`."""
        if self._url.partition("://")[0] not in _OBJECT_STORES:
            with _only_os_errors():
                self._filesystem.makedirs(self._path, exist_ok=True)

    def size(self, name: str) -> int:
        """See `Folder`."""
        self._forget()
        with _only_os_errors():
            return int(self._filesystem.info(f"{self._path}/{name}")["size"])

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        with _only_os_errors():
            content: bytes = self._filesystem.cat_file(f"{self._path}/{name}")
        return content

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator[FileReader]:
        """See `Folder`."""
        yield _RemoteFile(self._filesystem, f"{self._path}/{name}")

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[FileWriter]:
        """See `Folder`."""
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
        """See `Folder`."""
        with _only_os_errors():
            self._filesystem.pipe_file(f"{self._path}/{name}", content)

    def rename(self, name: str, new_name: str) -> None:
        """See `Folder`."""
        self.put(new_name, self.read(name))
        with _only_os_errors():
            self._filesystem.rm_file(f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        """See `Folder`."""
        with contextlib.suppress(FileNotFoundError), _only_os_errors():
            self._filesystem.rm_file(f"{self._path}/{name}")

    def sync(self) -> None:
        """See `Folder`."""
        # what an object store has taken it keeps

    def remove(self, *, first: Sequence[str] = ()) -> None:
        """See `Folder`."""
        self._forget()
        for name in first:
            self.delete(name)
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
