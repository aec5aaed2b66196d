"""When a rank loads which chunk, and where the chunk's rows go: numbers to numbers.

Where a lane comes to a chunk, the chunk's part inside the lane's span is needed. A rank loads a
chunk when the first of its lanes comes to it, and puts the rows of all its lanes to their places in
the batches of the coming steps; lanes that share a chunk come to it at the same time (see
`partition.pieces`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.dataset import Dataset
from distrain.loader.options import LoaderOptions
from distrain.partition import Chunks, EpochPlan, Piece, Pieces, chunk_order, lane_pieces
from distrain.partition.on_demand import OnDemand


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


class Loads(OnDemand[Load]):
    """Loads in 12 bytes each, and their pieces."""

    def __init__(self, steps: NDArray[np.int64], bounds: NDArray[np.int64], pieces: Pieces):
        self._steps = steps
        self._bounds = bounds.astype(np.int32)  # each load's first piece
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._steps)

    def _make(self, place: int) -> Load:
        pieces = self._pieces[int(self._bounds[place]) : int(self._bounds[place + 1])]
        return Load(int(self._steps[place]), pieces[0].chunk, pieces)


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


def epoch_chunks(dataset: Dataset, options: LoaderOptions, epoch: int) -> Chunks:
    """An epoch's chunks, in its order."""
    by_parts = options.shuffle == "chunk"
    return chunk_order(
        dataset.table.compact.rows,
        options.seed,
        epoch,
        options.shuffle,
        # Without a shuffle, larger chunks are the same line in fewer, larger steps.
        options.parts_per_chunk if by_parts else 1,
        parts=dataset.parts if by_parts else None,
    )


def plan_loads(plan: EpochPlan, chunks: Chunks, lanes: Iterable[int], start_step: int = 0) -> Loads:
    """All loads that some lanes need from `start_step` on, in the order of their steps."""
    cells = np.concatenate([_pieces_from(plan, chunks, lane, start_step) for lane in lanes])
    lane, chunk, offset = cells[:, 0], cells[:, 1], cells[:, 4]
    steps = plan.step_of(lane, offset)
    by_chunk = np.argsort(chunk, kind="stable")  # pieces of a chunk stay in the order of lanes
    begins = np.flatnonzero(np.diff(chunk[by_chunk], prepend=-1))
    if not len(begins):
        return Loads(begins, np.zeros(1, np.int64), Pieces(cells))
    first_steps = np.minimum.reduceat(steps[by_chunk], begins)
    order = np.argsort(first_steps, kind="stable")
    counts = np.diff(begins, append=len(cells))[order]
    bounds = np.cumsum(np.append(0, counts))
    places = np.repeat(begins[order] - bounds[:-1], counts) + np.arange(len(cells))
    by_load = cells[by_chunk[places]]
    if by_load.max() < 2**31:
        by_load = by_load.astype(np.int32)
    return Loads(first_steps[order], bounds, Pieces(by_load))


def runs_of(plan: EpochPlan, lanes: range, piece: Piece) -> Runs:
    """Where the rows of a piece go in the batches of the rank that serves `lanes`.

    >>> plan = EpochPlan(num_rows=12, lanes=2, global_batch_size=4)
    >>> runs = runs_of(plan, range(2), Piece(lane=1, chunk=0, start=6, stop=12, offset=0))
    >>> runs.steps.tolist(), runs.starts.tolist(), runs.counts.tolist()
    ([0, 1, 2], [2, 2, 2], [2, 2, 2])
    """
    first, last = piece.offset, piece.offset + piece.stop - piece.start
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


def _pieces_from(plan: EpochPlan, chunks: Chunks, lane: int, start_step: int) -> NDArray[np.int64]:
    """The lane's pieces without the rows that it gives before `start_step`, or never."""
    first = plan.lane_rows_before(lane, start_step)
    last = plan.lane_rows_before(lane, plan.num_steps)
    cells = lane_pieces(plan, chunks, lane).cells
    starts, stops, offsets = cells[:, 2], cells[:, 3], cells[:, 4]
    before = np.maximum(first - offsets, 0)
    stops -= np.maximum(offsets + stops - starts - last, 0)
    starts += before
    offsets += before
    return cells[starts < stops]
