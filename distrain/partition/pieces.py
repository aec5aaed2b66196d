"""Which parts of which chunks a lane goes through, and in which order.

Neighbouring lanes share the chunk that their border cuts. Even lanes go through their chunks from
the first to the last, odd lanes from the last to the first. So the two lanes at a border come to
the shared chunk at the same time, both at the start of the epoch or both at its end, and whoever
serves both needs it once; otherwise one lane's rows of it would have to be kept for a whole epoch,
or be decoded again. Within a chunk, every lane keeps the chunk's order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from distrain.partition.order import Chunk
from distrain.partition.plan import EpochPlan


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in its shuffled order, that belong to one lane.

    Attributes:
        lane: Which lane.
        chunk: Which chunk, by its number in the epoch's order.
        start: The first of its rows in the chunk.
        stop: One past the last.
        offset: How many rows the lane gives before these.
    """

    lane: int
    chunk: int
    start: int
    stop: int
    offset: int


def lane_pieces(plan: EpochPlan, chunks: Sequence[Chunk], lane: int) -> list[Piece]:
    """A lane's pieces, in the order in which it gives their rows.

    >>> from distrain.partition import chunk_order
    >>> plan = EpochPlan(12, lanes=2, global_batch_size=4)
    >>> chunks = chunk_order([4, 4, 4], seed=0, epoch=0, shuffle="none")
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 0)]
    [(0, 0, 4), (1, 0, 2)]
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 1)]
    [(2, 0, 4), (1, 2, 4)]
    """
    first, last = plan.lane_span(lane)
    starts = [chunk.start for chunk in chunks]
    numbers = range(bisect_right(starts, first) - 1, bisect_left(starts, last))
    pieces = []
    offset = 0
    for number in reversed(numbers) if lane % 2 else numbers:
        chunk = chunks[number]
        start, stop = max(first - chunk.start, 0), min(last - chunk.start, chunk.num_rows)
        if start < stop:
            pieces.append(Piece(lane, number, start, stop, offset))
            offset += stop - start
    return pieces
