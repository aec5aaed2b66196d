"""Reads ranges of a local file into buffers, with few system calls."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence

from distrain.errors import DataError

_MOST_AT_ONCE = 256  # parts read in one call; Linux allows 1,024 buffers, and a part takes two
_CUT_SHORT_HINT = "The file was changed while it was read."

Identity = tuple[int, int, int, int]
"""The device, inode, size in bytes, and modification time (ns) of a file."""


class Buffers:
    """A buffer for each thread; the buffer of a thread that has ended is reused by a new thread."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._free: deque[memoryview] = deque()

    def take(self, num_bytes: int) -> memoryview:
        """Return the first `num_bytes` of the calling thread's buffer.

        They may be the memory that an earlier call returned.
        """
        lease: _ThreadBuffer | None = getattr(self._own, "lease", None)
        if lease is None:
            lease = self._own.lease = _ThreadBuffer(self._free)
        if len(lease.buffer) < num_bytes:
            lease.buffer = memoryview(bytearray(num_bytes))
        return lease.buffer[:num_bytes]


class _ThreadBuffer:
    def __init__(self, free: deque[memoryview]):
        self._free = free
        try:
            self.buffer = free.pop()
        except IndexError:
            self.buffer = memoryview(b"")

    def __del__(self) -> None:
        self._free.append(self.buffer)


class RawFile:
    """An open local file, for any number of threads.

    It is read with `preadv` and not mapped to memory: if a mapped file is truncated, access to it
    kills the process.
    """

    def __init__(self, path: str):
        self.path = path
        self._descriptor = -1  # for `__del__`, if the next line fails
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity: Identity = _identity(os.fstat(self._descriptor))

    def __del__(self) -> None:
        # A thread that still reads has a reference, so a descriptor in use is not closed.
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    @property
    def num_bytes(self) -> int:
        return self.identity[2]

    def is_unchanged(self) -> bool:
        """Return True if the path still refers to this file, and the file has not changed.

        Raises an `OSError` if there is no file any more.
        """
        return _identity(os.stat(self.path)) == self.identity

    def error(self, message: str, hint: str, **where: object) -> DataError:
        return DataError(message, where={"file": self.path, **where}, hint=hint)

    def fill(self, part: memoryview, start: int) -> None:
        """Fill `part` with the file's bytes from `start` on; `DataError` if the file is shorter."""
        done = 0
        while done < len(part):  # the kernel reads at most 2 GiB at once
            count = os.preadv(self._descriptor, [part[done:]], start + done)
            if not count:
                raise self.error("the file was cut short", _CUT_SHORT_HINT)
            done += count

    def fill_all(
        self, parts: Sequence[memoryview], starts: Sequence[int], scratch: memoryview
    ) -> None:
        """Fill each of `parts` with the file's bytes from its offset in `starts` on.

        Parts whose gap is not longer than `scratch` are read in one call; the bytes of the gap are
        written to `scratch`. Raises a `DataError` if the file is too short.
        """
        begin = 0
        for end in range(1, len(parts) + 1):
            if end < len(parts) and end - begin < _MOST_AT_ONCE:
                gap = starts[end] - starts[end - 1] - len(parts[end - 1])
                if 0 <= gap <= len(scratch):
                    continue
            self._fill_neighbours(parts[begin:end], starts[begin:end], scratch)
            begin = end

    def _fill_neighbours(
        self, parts: Sequence[memoryview], starts: Sequence[int], scratch: memoryview
    ) -> None:
        pieces = []
        place = starts[0]
        for part, start in zip(parts, starts, strict=True):
            pieces += [scratch[: start - place], part]
            place = start + len(part)
        if os.preadv(self._descriptor, pieces, starts[0]) == place - starts[0]:
            return
        # The call was interrupted, or the file ends.
        for part, start in zip(parts, starts, strict=True):
            self.fill(part, start)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
