"""Parts of a remote file: which ranges to ask for, and memory that is read as a local file is."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class Span(NamedTuple):
    begin: int  # the first one
    end: int  # the one behind the last one

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def plan_ranges(spans: Iterable[Span], *, gap_bytes: int, most_bytes: int) -> list[Span]:
    """Return the ranges to ask for, in the order of the file, none of which overlap.

    Gaps of up to `gap_bytes` are read over, which takes less time than another request. What is
    longer than `most_bytes` is cut into equal ranges, which several connections bring at a time.

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


class Image:
    """A file in memory as large as a remote one, of which only what was written takes space.

    Bytes that were not written read as zeros. Its memory is free when nothing refers to it and
    whoever opened `path`, for reading, has closed it.
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
