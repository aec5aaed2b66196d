"""Local files under `watched://`: a test sees what is read of them, and says what fails."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class WatchedFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """A file system that calls `before` with `list`, `info`, `open` or `read` and a path.

    Before each read it notes the path, the position and the size in `reads`, and calls
    `before_read` with the number of reads so far.
    """

    protocol = "watched"
    cachable = False
    before: Callable[[str], None] = staticmethod(lambda _: None)
    before_read: Callable[[int], None] = staticmethod(lambda _: None)
    reads: ClassVar[list[tuple[str, int, int]]] = []
    lock = threading.Lock()

    @classmethod
    def reset(cls) -> None:
        """Register the file system, and forget what earlier tests set."""
        fsspec.register_implementation("watched", cls, clobber=True)
        cls.before = cls.before_read = staticmethod(lambda _: None)
        cls.reads = []

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("watched://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"watched://{name}"

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        type(self).before(f"list {path}")
        return super().ls(path, detail, **options)

    def info(self, path: str, **options: Any) -> Any:
        type(self).before(f"info {path}")
        return super().info(path, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        type(self).before(f"open {path}")
        return _WatchedFile(self._strip_protocol(path))


class _WatchedFile:
    def __init__(self, path: str):
        self._path = path
        self._handle = Path(path).open("rb", buffering=0)  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        with WatchedFileSystem.lock:
            WatchedFileSystem.reads.append((self._path, self._handle.tell(), size))
            number = len(WatchedFileSystem.reads)
        WatchedFileSystem.before(f"read {self._path}")
        WatchedFileSystem.before_read(number)
        return self._handle.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __enter__(self) -> "_WatchedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()
