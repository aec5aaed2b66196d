"""When a rank loads which chunk, and where the chunk's rows go: numbers to numbers.

A lane crosses chunks from left to right. Where it enters a chunk, the rest of the chunk inside the
lane's span is needed. A rank loads a chunk once, when the first of its lanes enters it, and puts
the rows of all its lanes to their places in the batches of the coming steps.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.partition import Chunk, EpochPlan


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in its shuffled order, that belong to one lane."""

    lane: int
    start: int
    stop: int


class Load(NamedTuple):
    """One loading of a chunk.

    Attributes:
        step: The step that cannot be made without it.
        chunk: Which chunk, by its number in the epoch's order.
        pieces: Who gets which of its rows.
    """

    step: int
    chunk: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Runs:
    """Where a piece's rows go: run by run, each some rows for one batch.

    Attributes:
        steps: The step of each run.
        starts: The place in the rank's batch where it begins.
        counts: Its rows.
    """

    steps: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]


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


def runs_of(plan: EpochPlan, lanes: range, chunk: Chunk, piece: Piece) -> Runs:
    """Where the rows of a piece go in the batches of the rank that serves `lanes`.

    >>> plan = EpochPlan(num_rows=12, lanes=2, global_batch_size=4)
    >>> runs = runs_of(plan, range(2), Chunk((0,), 0, 12), Piece(lane=1, start=6, stop=12))
    >>> runs.steps.tolist(), runs.starts.tolist(), runs.counts.tolist()
    ([0, 1, 2], [2, 2, 2], [2, 2, 2])
    """
    lane_start, _ = plan.lane_span(piece.lane)
    first = chunk.start + piece.start - lane_start
    last = chunk.start + piece.stop - lane_start
    from_step, to_step = plan.step_of(piece.lane, first), plan.step_of(piece.lane, last - 1) + 1
    # How many rows of the epoch were taken before each of these steps, and before the one after.
    taken = np.arange(from_step, to_step + 1, dtype=np.int64) * plan.global_batch_size
    taken = np.minimum(taken, plan.num_rows)
    of_lane = _taken_below(taken, piece.lane + 1, plan) - _taken_below(taken, piece.lane, plan)
    earlier = _taken_below(taken, piece.lane, plan) - _taken_below(taken, lanes.start, plan)
    bounds = np.clip(of_lane, first, last)
    skipped = bounds[:-1] - of_lane[:-1]  # of the first run, where the piece begins inside a step
    return Runs(
        np.arange(from_step, to_step), earlier[1:] - earlier[:-1] + skipped, np.diff(bounds)
    )


def _taken_below(taken: NDArray[np.int64], lane: int, plan: EpochPlan) -> NDArray[np.int64]:
    """How many of an epoch's first `taken` rows come from the lanes below `lane`."""
    rounds, rest = np.divmod(taken, plan.lanes)
    below: NDArray[np.int64] = rounds * lane + np.minimum(rest, lane)
    return below


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
