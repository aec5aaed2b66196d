"""Parts of a remote file in memory, which are read as if they were a local file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from distrain.loader.reading.ranges import Span


class Image:
    """A file in memory as large as a remote one, of which only what was written takes room.

    Bytes that were not written read as zeros. Its memory is free when nothing refers to it and
    whoever opened `path` has closed it.

    Args:
        num_bytes: The size of the file.

    Attributes:
        path: Where this process can open it, for reading, with handles of their own.
    """

    _memory: _HasNumber

    def __init__(self, num_bytes: int):
        self._memory = _Memory()
        os.ftruncate(self._memory.number, num_bytes)
        self.path = f"/proc/self/fd/{self._memory.number}"

    def write(self, begin: int, content: bytes) -> None:
        """Put bytes to their place in the file; from any thread."""
        view = memoryview(content)
        while view:
            count = os.pwrite(self._memory.number, view, begin)
            begin, view = begin + count, view[count:]

    def bring(self, span: Span, read: Callable[[int, int], bytes]) -> None:
        """Put a range of the file, which `read` gives, to its place."""
        self.write(span.begin, read(*span))


class _HasNumber(Protocol):
    number: int


class _Memory:
    """A descriptor of new memory, closed when nothing refers to it any more.

    It is no part of `Image`, which is found by weak references: these still give an object while
    its `__del__` runs, whose descriptor is closed, or another file's by then.
    """

    def __init__(self) -> None:
        self.number = -1
        self.number = os.memfd_create("distrain", os.MFD_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
