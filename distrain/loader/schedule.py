"""When a rank loads which chunk, and for which of its lanes: numbers to numbers.

A lane crosses chunks from left to right. Where it enters a chunk, the part of the chunk inside the
lane's span must be in memory. A rank decodes a chunk once, when the first of its lanes enters it,
and gives the other lanes that cross it their rows then: only lanes next to each other share a
chunk, at their border, so a lane holds at most its parts of the chunk it is in and of its last one
(or of as many as one step needs, where chunks are smaller than that).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from distrain.partition import Chunk, EpochPlan


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in its shuffled order, that belong to one lane."""

    lane: int
    start: int
    stop: int


class Load(NamedTuple):
    """One decoding of a chunk.

    Attributes:
        step: The step that cannot be made without it.
        chunk: Which chunk, by its number in the epoch's order.
        pieces: Who gets which of its rows.
    """

    step: int
    chunk: int
    pieces: tuple[Piece, ...]


class _Entry(NamedTuple):
    """A lane enters a chunk."""

    step: int
    chunk: int
    piece: Piece


def plan_loads(
    plan: EpochPlan, chunks: Sequence[Chunk], lanes: Iterable[int], start_step: int = 0
) -> list[Load]:
    """All loads that some lanes need from `start_step` on, in the order of their steps."""
    starts = [chunk.start for chunk in chunks]
    entries = sorted(
        entry for lane in lanes for entry in _entries(plan, chunks, starts, lane, start_step)
    )
    loads: dict[int, tuple[int, list[Piece]]] = {}  # by chunk, in the order of their steps
    for step, chunk, piece in entries:
        loads.setdefault(chunk, (step, []))[1].append(piece)
    return [Load(step, chunk, tuple(pieces)) for chunk, (step, pieces) in loads.items()]


def _entries(
    plan: EpochPlan, chunks: Sequence[Chunk], starts: Sequence[int], lane: int, start_step: int
) -> Iterator[_Entry]:
    lane_start, _ = plan.lane_span(lane)
    row = lane_start + plan.lane_rows_before(lane, start_step)
    last = lane_start + plan.lane_rows_before(lane, plan.num_steps)
    number = bisect_right(starts, row) - 1
    while row < last:
        chunk = chunks[number]
        stop = min(last, chunk.start + chunk.num_rows)
        if row < stop:
            piece = Piece(lane, row - chunk.start, stop - chunk.start)
            yield _Entry(plan.step_of(lane, row - lane_start), number, piece)
        row = stop
        number += 1
