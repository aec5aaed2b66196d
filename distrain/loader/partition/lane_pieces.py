"""Computes the pieces of each lane: which rows of which chunks it has, in the lane's order.

A lane is a span of the epoch's line, which is a sequence of chunks (see `row_order`). Two adjacent
lanes may share the chunk at their border. Even lanes traverse their chunks from first to last, odd
lanes from last to first. So the two lanes reach the shared chunk at the same time, both at the
start of the epoch or both at its end, and a rank that serves both decodes it once. Otherwise the
chunk's rows for one lane would have to be kept for a whole epoch, or decoded again. Within a chunk,
every lane keeps the chunk's order.

In a full shuffle all lanes traverse the line forwards, also if its only chunk is stored as several
buckets (`forward_pieces`). In tables with large row groups, chunks are distributed to lanes instead
(see `slice_dealing`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.row_order import Chunks


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in the chunk's shuffled order, that belong to one lane."""

    lane: int
    chunk: int  # the chunk's number in the epoch's order
    start: int  # the first row's place in the chunk's order
    stop: int  # one past the last row's place
    offset: int  # the number of the lane's rows before this piece


class Pieces(LazySequence[Piece]):
    """Pieces, stored as int32 or int64 in 20 or 40 bytes each.

    Attributes:
        cells: `[pieces, 5]`: the fields of each `Piece`.
    """

    def __init__(self, cells: NDArray[Any]):
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def _make(self, place: int) -> Piece:
        return Piece(*self.cells[place].tolist())


def lane_pieces(plan: EpochPlan, chunks: Chunks, lane: int) -> Pieces:
    """Return a lane's pieces, in the order of the lane's rows.

    >>> from distrain.loader.partition.row_order import chunk_order
    >>> plan = EpochPlan(12, lanes=2, global_batch_size=4)
    >>> chunks = chunk_order([4, 4, 4], seed=0, epoch=0, shuffle="none")
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 0)]
    [(0, 0, 4), (1, 0, 2)]
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 1)]
    [(2, 0, 4), (1, 2, 4)]
    """
    if chunks.dealt is not None:
        bounds = np.searchsorted(chunks.dealt[:, 0], [lane, lane + 1])
        return Pieces(chunks.dealt[bounds[0] : bounds[1]].copy())
    return _pieces_on_line(plan, chunks, lane, backwards=bool(lane % 2))


def forward_pieces(plan: EpochPlan, chunks: Chunks) -> NDArray[np.int64]:
    """Return the pieces of all lanes, `[pieces, 5]`, if all lanes traverse the line forwards."""
    cells = [_pieces_on_line(plan, chunks, n, backwards=False).cells for n in range(plan.lanes)]
    return np.concatenate(cells)


def _pieces_on_line(plan: EpochPlan, chunks: Chunks, lane: int, *, backwards: bool) -> Pieces:
    first, last = plan.lane_span(lane)
    lowest = int(np.searchsorted(chunks.starts[:-1], first, side="right")) - 1
    numbers = np.arange(lowest, np.searchsorted(chunks.starts[:-1], last))
    if backwards:
        numbers = numbers[::-1]
    begins = chunks.starts[numbers]
    starts = np.maximum(first - begins, 0)
    stops = np.minimum(last, chunks.starts[numbers + 1]) - begins
    rows = np.maximum(stops - starts, 0)
    cells = [np.full_like(rows, lane), numbers, starts, stops, np.cumsum(rows) - rows]
    return Pieces(np.stack(cells, axis=1)[rows > 0])
