"""When a rank loads which chunk, and for which of its lanes: numbers to numbers.

A lane crosses chunks from left to right. Where it enters a chunk, the part of the chunk inside the
lane's span must be in memory. A chunk loaded for one lane is shared with

- the lanes that enter it at the same step, and
- the lanes that enter it next, after the chunk they are in (at the border of two lanes, or when a
  table has few chunks for many lanes).

So a lane holds its parts of at most two chunks (or of as many as one step needs, where chunks are
smaller than that), and a table of one chunk is decoded once.
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
    loads: list[tuple[int, int, list[Piece]]] = []
    newest: dict[int, int] = {}  # chunk -> its newest place in `loads`
    entered: dict[int, int] = {}  # lane -> the step at which it entered the chunk before
    for step, chunk, piece in entries:
        place = newest.get(chunk)
        if place is not None and entered.get(piece.lane, start_step) <= loads[place][0]:
            loads[place][2].append(piece)
        else:
            newest[chunk] = len(loads)
            loads.append((step, chunk, [piece]))
        entered[piece.lane] = step
    return [Load(step, chunk, tuple(pieces)) for step, chunk, pieces in loads]


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
