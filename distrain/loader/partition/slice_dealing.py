"""Distributes slices of large row groups to lanes, so that few row groups are open at a time.

A slice can only be decoded after the slices before it in its row group. So a lane must not begin
inside a row group, as it does when lanes are spans of the epoch's line. Instead, adjacent lanes
form lane groups. A lane group takes a run (the consecutive chunks of the same row groups) and gives
each chunk to the one of its lanes that has the fewest rows so far, until the run is over. So each
lane group has one run open, and a rank has the runs of its lanes' lane groups open. When no run is
left, a lane group shares the run of another lane group.

If all lanes began with a whole chunk, all would start new chunks at the same steps. So the lanes of
each pair share their first chunk, which is cut at a different place for each pair. A lane's last
chunk is cut where the lane has all its rows.

The result depends only on the runs, the rows of their chunks, and the rows of the lanes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

LANES_PER_GROUP = 3
"""The number of lanes in a lane group.

With larger lane groups, fewer row groups are open, but a batch has rows of fewer row groups.
"""


def num_lane_groups(lanes: int) -> int:
    return -(-lanes // LANES_PER_GROUP)


def deal_runs(
    runs: Iterable[Sequence[int]], capacities: Sequence[int], lane_groups: int
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """Distribute the chunks of runs to lanes, so that each lane gets exactly its number of rows.

    Args:
        runs: The number of rows of each chunk of each run; their sum must be that of `capacities`.
        capacities: The number of rows that each lane gets.
        lane_groups: The number of groups of adjacent lanes. Each takes chunks from its own run, and
            from another lane group's run when no run is left.

    Returns:
        The order in which chunks are begun, as (run, chunk of the run); and the pieces of all
        lanes, `[pieces, 5]`, as in `Pieces`, lane by lane. In the pieces, chunks are numbered in
        the order in which they are begun; a lane's pieces are in the order of its rows.
    """
    table = _Table(runs, lane_groups)
    lanes, size = len(capacities), -(-len(capacities) // lane_groups)
    done = [0] * lanes
    pieces: list[tuple[int, int, int, int, int]] = []

    def give(lane: int, chunk: int, start: int, stop: int) -> int:
        """Give a lane rows of a chunk from `start` on, as many as it lacks, up to `stop`.

        Returns the first row that it did not get.
        """
        rows = min(stop - start, capacities[lane] - done[lane])
        if rows:
            pieces.append((lane, chunk, start, start + rows, done[lane]))
            done[lane] += rows
        return start + rows

    for lane in range(lanes):
        if done[lane] or not capacities[lane]:
            continue
        chunk, at, stop = table.next_for(lane // size)
        shared = lane % 2 == 0 and lane + 1 < lanes
        cut = at + max(1, (stop - at) * (lane + 1) // (2 * lanes)) if shared else stop
        at = give(lane, chunk, at, cut)
        at = give(lane + 1, chunk, at, stop) if shared else at
        table.give_back(lane // size, (chunk, at, stop))
    # The lane with the fewest rows is next, since an epoch takes its rows from the lanes in turn.
    turns = [(done[lane], lane) for lane in range(lanes) if done[lane] < capacities[lane]]
    heapq.heapify(turns)
    while turns:
        _, lane = heapq.heappop(turns)
        chunk, at, stop = table.next_for(lane // size)
        table.give_back(lane // size, (chunk, give(lane, chunk, at, stop), stop))
        if done[lane] < capacities[lane]:
            heapq.heappush(turns, (done[lane], lane))
    cells = np.array(pieces, np.int64).reshape(-1, 5)
    return table.begun, cells[np.argsort(cells[:, 0], kind="stable")]


class _Table:
    """The chunks, and remainders of chunks, that no lane has yet, by run.

    A lane group takes chunks from its own run.

    `begun` has the chunks that were begun, in order, as (run, chunk of the run).
    """

    def __init__(self, runs: Iterable[Sequence[int]], lane_groups: int):
        self.begun: list[tuple[int, int]] = []
        self._waiting = deque(
            deque((number, place, rows) for place, rows in enumerate(run))
            for number, run in enumerate(runs)
        )
        self._open: list[deque[tuple[int, int, int]]] = [deque() for _ in range(lane_groups)]
        self._rests: list[list[tuple[int, int, int]]] = [[] for _ in range(lane_groups)]

    def next_for(self, lane_group: int) -> tuple[int, int, int]:
        """Return the number of the lane group's next chunk, and the rows of it that no lane has.

        The rows are a range: the first row, and one past the last.
        """
        if self._rests[lane_group]:
            return self._rests[lane_group].pop()
        if not self._open[lane_group]:
            joined = max(self._open, key=len)
            self._open[lane_group] = self._waiting.popleft() if self._waiting else joined
        if not self._open[lane_group]:
            return next(rests for rests in self._rests if rests).pop()
        run, place, rows = self._open[lane_group].popleft()
        self.begun.append((run, place))
        return len(self.begun) - 1, 0, rows

    def give_back(self, lane_group: int, rest: tuple[int, int, int]) -> None:
        """Make the remainder of a chunk, if any rows remain, the next chunk of the lane group."""
        if rest[1] < rest[2]:
            self._rests[lane_group].append(rest)
