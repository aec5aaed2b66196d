"""Plans which ranges of a remote file to request, and stores them in memory like a local file."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    begin: int  # the first byte
    end: int  # one past the last byte

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def plan_ranges(spans: Iterable[Span], *, gap_bytes: int, most_bytes: int) -> list[Span]:
    """Return the ranges to request for some spans, in the order of the file, without overlaps.

    Gaps of up to `gap_bytes` between spans are read as well, which is faster than another request.
    Ranges longer than `most_bytes` are cut into equal parts, which are fetched by several
    connections at a time.

    >>> spans = [Span(100, 140), Span(0, 10), Span(12, 20)]
    >>> [tuple(span) for span in plan_ranges(spans, gap_bytes=2, most_bytes=30)]
    [(0, 20), (100, 120), (120, 140)]
    """
    joined: list[Span] = []
    for span in sorted(span for span in spans if span.num_bytes > 0):
        if joined and span.begin - joined[-1].end <= gap_bytes:
            last = joined.pop()
            span = Span(last.begin, max(last.end, span.end))
        joined.append(span)
    return [part for span in joined for part in _cut(span, most_bytes)]


def _cut(span: Span, most_bytes: int) -> list[Span]:
    count = -(-span.num_bytes // most_bytes)
    cuts = [span.begin + span.num_bytes * number // count for number in range(count + 1)]
    return [Span(begin, end) for begin, end in itertools.pairwise(cuts)]


class PartialFile:
    """A file in memory with the size of a remote file, of which only some ranges are written.

    Only written ranges take memory; all other bytes read as zeros. Open it at `path`. The memory is
    freed when there is no reference to the partial file and all files opened at `path` are closed.
    """

    def __init__(self, num_bytes: int):
        self._memory = _Memory()
        os.ftruncate(self._memory.number, num_bytes)
        self.path = f"/proc/self/fd/{self._memory.number}"

    def write(self, begin: int, content: bytes) -> None:
        """Write bytes at offset `begin`; may be called from any thread."""
        view = memoryview(content)
        while view:
            count = os.pwrite(self._memory.number, view, begin)
            begin, view = begin + count, view[count:]


class _Memory:
    """The file descriptor of new memory, closed when there is no reference to this object.

    It is not part of `PartialFile`, which `Fetcher` finds by weak references. These may return an
    object whose `__del__` already runs: its descriptor would be closed, or be that of another file.
    """

    def __init__(self) -> None:
        self.number = -1
        self.number = os.memfd_create("distrain", os.MFD_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
