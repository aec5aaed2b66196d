"""A folder of files on any filesystem that fsspec knows, written to as well as read.

Whatever goes wrong is an `OSError`, also where a filesystem has errors of its own;
`FileNotFoundError` means that something is not there. On local disks what was written is synced.
"""

import contextlib
from collections.abc import Sequence
from typing import Protocol


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

    def files(self) -> list[str]:
        """The names of the files in it, sorted; none if it is missing itself."""

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

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if it is missing."""

    def sync(self) -> None:
        """Make sure that the names of the files in it survive a loss of power."""

    def remove(self, *, first: Sequence[str] = ()) -> None:
        """Remove it with all that is in it, these files first; nothing happens if it is missing."""
