"""The pieces of chunks that a lane goes through, in its order.

Neighbouring lanes share the chunk that their border cuts. Even lanes go through their chunks from
the first to the last, odd lanes from the last to the first. So the two lanes at a border come to
the shared chunk at the same time, both at the start of the epoch or both at its end, and a rank
that serves both needs it once; otherwise one lane's rows of it would have to be kept for a whole
epoch, or be decoded again. Within a chunk, every lane keeps the chunk's order.

The only chunk of a full shuffle is gone through forwards by all lanes, also where it comes in parts
(`forward_pieces`). In tables with large row groups lanes are dealt their chunks instead (see
`dealing`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.row_order import Chunks


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in its shuffled order, that belong to one lane."""

    lane: int
    chunk: int  # the chunk's number in the epoch's order
    start: int  # the first row, in the chunk
    stop: int  # one past the last row
    offset: int  # the number of rows that the lane gives before these


class Pieces(LazySequence[Piece]):
    """Pieces in 20 or 40 bytes each.

    Attributes:
        cells: `[pieces, 5]`: the attributes of each.
    """

    def __init__(self, cells: NDArray[Any]):
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def _make(self, place: int) -> Piece:
        return Piece(*self.cells[place].tolist())


def lane_pieces(plan: EpochPlan, chunks: Chunks, lane: int) -> Pieces:
    """Return a lane's pieces, in the order in which it gives their rows.

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
    """The pieces of all lanes where odd lanes go forward, too; `Chunks.dealt` of such an epoch."""
    cells = [_pieces_on_line(plan, chunks, n, backwards=False).cells for n in range(plan.lanes)]
    return np.concatenate(cells)


def _pieces_on_line(plan: EpochPlan, chunks: Chunks, lane: int, *, backwards: bool) -> Pieces:
    first, last = plan.lane_span(lane)
    lowest = int(np.searchsorted(chunks.starts[:-1], first, side="right")) - 1
    numbers = np.arange(max(lowest, 0), np.searchsorted(chunks.starts[:-1], last))
    if backwards:
        numbers = numbers[::-1]
    begins = chunks.starts[numbers]
    starts = np.maximum(first - begins, 0)
    stops = np.minimum(last, chunks.starts[numbers + 1]) - begins
    rows = np.maximum(stops - starts, 0)
    cells = [np.full_like(rows, lane), numbers, starts, stops, np.cumsum(rows) - rows]
    return Pieces(np.stack(cells, axis=1)[rows > 0])
