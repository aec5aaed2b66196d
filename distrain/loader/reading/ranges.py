"""Which ranges of a file to ask for, so that some spans of it are there: numbers to numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes of a file."""

    begin: int  # the first one
    end: int  # the one behind the last one

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def plan_ranges(spans: Iterable[Span], *, gap_bytes: int, most_bytes: int) -> list[Span]:
    """The ranges to ask for, in the order of the file, none of which overlap.

    They hold every byte of the spans, and beside them only gaps between two spans that are no
    longer than `gap_bytes`: to read over such a gap takes less time than another request. What is
    longer than `most_bytes` is cut into ranges of nearly the same size, which several connections
    bring at a time.

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
