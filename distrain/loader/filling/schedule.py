"""Plans when a rank loads each chunk, and where the chunk's rows go in batches; without any I/O.

A chunk is a set of row groups whose rows are shuffled together; a lane is a sequence of rows, from
which each step takes some (see `partition.epoch_plan`). The rows of a chunk that belong to one lane
are a *piece*. A rank's *load* of a chunk has the pieces of all its lanes. It begins when the first
of these lanes needs its piece. It then writes the rows of all its lanes to their places in the
batches of the coming steps. Lanes that share a chunk need it at the same time (see
`partition.row_order`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError
from distrain.loader.dataset import Dataset
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.row_order import (
    Chunk,
    Chunks,
    Piece,
    Pieces,
    chunk_order,
    lane_pieces,
    row_order,
    sliced_order,
)
from distrain.loader.partition.slice_dealing import num_lane_groups


class Load(NamedTuple):
    """The rows of a chunk that a rank needs, which it reads together, and when it needs them."""

    step: int  # the first step that needs rows of the chunk
    chunk: int  # the chunk's number in the epoch's order
    pieces: tuple[Piece, ...]  # the rows of each of the rank's lanes


class Loads(LazySequence[Load]):
    def __init__(self, steps: NDArray[np.int64], bounds: NDArray[np.int64], pieces: Pieces):
        self._steps = steps
        self._bounds = bounds.astype(np.int32)  # each load's first piece
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._steps)

    def _make(self, place: int) -> Load:
        pieces = self._pieces[int(self._bounds[place]) : int(self._bounds[place + 1])]
        return Load(int(self._steps[place]), pieces[0].chunk, pieces)


class LoadSteps(NamedTuple):
    """The steps for which a load has rows, as `LookAhead` needs them."""

    first: int  # the first step that a load has rows for
    last: int
    open_steps: int  # number of steps whose batches may be open, from the current one on
    begin: int  # the first step of the load's epoch or window

    @classmethod
    def of(cls, plan: EpochPlan, load: Load, open_steps: int, begin: int = 0) -> LoadSteps:
        """Return the steps of a load, counted over all epochs.

        `begin` is the first step of the load's epoch or window, in which the plan counts from 0.
        `open_steps` is the number of steps whose batches may be open (being filled) at a time.
        """
        last = max(steps_of(plan, piece).stop for piece in load.pieces) - 1
        return cls(begin + load.step, begin + last, open_steps, begin)


class LookAhead:
    """Decides which loads may begin at the current step; loads are ordered by their first steps.

    A load may begin if the current step needs it, or if all its rows are for steps whose batches
    may be open. In the second case, at most `most` loads of the current epoch have begun before
    they are needed. For the next epoch there is no such limit, since every lane needs a chunk at an
    epoch's first step.
    """

    def __init__(self, most: int):
        self._most = most
        self._ahead: deque[int] = deque()  # first steps of loads that began before they were needed

    def may_begin(self, load: LoadSteps, step: int) -> bool:
        """Return True if a load may begin at `step`; then it counts as begun.

        Call it for loads in order: after True, for the next load; after False, for the same load
        at a later step.
        """
        while self._ahead and self._ahead[0] <= step:
            self._ahead.popleft()
        are_few = len(self._ahead) < self._most or step < load.begin
        if load.first <= step or (are_few and load.last < step + load.open_steps):
            self._ahead.append(load.first)
            return True
        return False


class BatchRuns(NamedTuple):
    """The places of a piece's rows in batches, as arrays with an item for each step.

    The rows of a step are consecutive in the rank's batch: a run, with its step, its first row in
    the batch, and its number of rows.
    """

    steps: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]


def epoch_chunks(dataset: Dataset, options: LoaderOptions, epoch: int) -> Chunks:
    """Return the chunks of an epoch in its order; their row groups are indices of `dataset.slices`.

    With `shuffle="full"`, there is one chunk, with all slices.
    """
    by_parts = options.shuffle == "chunk"
    slices = dataset.slices
    chunks = chunk_order(
        # With "full", the order is the same for row groups and for slices.
        slices.rows if options.shuffle == "full" else dataset.table.compact.rows,
        options.seed,
        epoch,
        options.shuffle,
        # Without a shuffle, larger chunks give the same order in fewer, larger steps.
        options.parts_per_chunk if by_parts else 1,
        parts=dataset.parts if by_parts else None,
    )
    if not slices.any_large or options.shuffle == "full":
        return chunks
    plan = EpochPlan(len(dataset), options.lanes, options.global_batch_size)
    lane_rows = [plan.lane_rows_before(lane, plan.num_steps) for lane in range(options.lanes)]
    return sliced_order(chunks, slices, lane_rows, lane_groups_of(options))


def lane_groups_of(options: LoaderOptions) -> int:
    """Return the number of groups of lanes, each of which reads its own part of the files.

    With `shuffle="chunk"`, a group has `LANES_PER_GROUP` lanes. Otherwise, there is one group.
    """
    # With one lane group, each lane traverses the files from the first to the last.
    return num_lane_groups(options.lanes) if options.shuffle == "chunk" else 1


def open_groups(dataset: Dataset, options: LoaderOptions) -> int:
    """Return the maximum number of large row groups whose slices a rank reads at a time.

    It is 0 if the table has no large row groups.
    """
    slices = dataset.slices
    if not slices.any_large:
        return 0
    if options.shuffle != "chunk":
        return 1
    large = np.diff(slices.firsts) > 1
    of_parts = np.add.reduceat(large, dataset.parts.bounds[:-1], dtype=np.int64)
    of_chunk = int(np.sort(of_parts)[-options.parts_per_chunk :].sum())
    size = -(-options.lanes // lane_groups_of(options))
    lanes = options.lanes // options.num_ranks
    first = options.rank * lanes
    lane_groups = (first + lanes - 1) // size - first // size + 1
    return min(int(large.sum()), lane_groups * of_chunk)


def plan_loads(plan: EpochPlan, chunks: Chunks, lanes: Iterable[int], start_step: int = 0) -> Loads:
    """Return all loads that `lanes` need from `start_step` on, ordered by their first steps.

    A load has all pieces of a chunk that these lanes need, in the order of the lanes.
    """
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


def steps_of(plan: EpochPlan, piece: Piece) -> range:
    """Return the steps whose batches have rows of a piece."""
    last = piece.offset + piece.stop - piece.start - 1
    return range(plan.step_of(piece.lane, piece.offset), plan.step_of(piece.lane, last) + 1)


def runs_of(plan: EpochPlan, lanes: range, piece: Piece) -> BatchRuns:
    """Return the places of a piece's rows in the batches of the rank that serves `lanes`.

    >>> plan = EpochPlan(num_rows=12, lanes=2, global_batch_size=4)
    >>> runs = runs_of(plan, range(2), Piece(lane=1, chunk=0, start=6, stop=12, offset=0))
    >>> runs.steps.tolist(), runs.starts.tolist(), runs.counts.tolist()
    ([0, 1, 2], [2, 2, 2], [2, 2, 2])
    """
    steps = steps_of(plan, piece)
    first, last = piece.offset, piece.offset + piece.stop - piece.start
    # Number of the epoch's rows taken before each of these steps, and before the step after them.
    taken = np.arange(steps.start, steps.stop + 1, dtype=np.int64) * plan.global_batch_size
    taken = np.minimum(taken, plan.num_rows)
    below = plan.rows_below(piece.lane, taken)
    of_lane = plan.rows_below(piece.lane + 1, taken) - below
    earlier = below - plan.rows_below(lanes.start, taken)
    bounds = np.minimum(np.maximum(of_lane, first), last)
    # Rows of the lane in the first step that come before the piece; 0 in all other steps.
    skipped = bounds[:-1] - of_lane[:-1]
    return BatchRuns(
        np.arange(steps.start, steps.stop), earlier[1:] - earlier[:-1] + skipped, np.diff(bounds)
    )


def _pieces_from(plan: EpochPlan, chunks: Chunks, lane: int, start_step: int) -> NDArray[np.int64]:
    """Return a lane's pieces as an array (see `Pieces`), from step `start_step` on.

    Rows of a last step that is dropped are left out, too.
    """
    first = plan.lane_rows_before(lane, start_step)
    last = plan.lane_rows_before(lane, plan.num_steps)
    cells = lane_pieces(plan, chunks, lane).cells
    starts, stops, offsets = cells[:, 2], cells[:, 3], cells[:, 4]
    before = np.maximum(first - offsets, 0)
    stops -= np.maximum(offsets + stops - starts - last, 0)
    starts += before
    offsets += before
    return cells[starts < stops]


_NO_PLACES = np.empty(0, np.int32)
_MOST_ROWS = 2**31  # maximum rows of a chunk, whose rows are numbered by int32


@dataclass(frozen=True)
class RowAssignment:
    """The rows of a row group that a rank needs, and their places in the rank's batches.

    Rows are listed run by run. A run is a range of consecutive places in one batch; rows of other
    row groups may fill some of them.
    """

    rows: NDArray[np.int32]  # `[assigned rows]`, int32: rows of the row group, run after run
    steps: NDArray[np.int64]  # the step of each run
    starts: NDArray[np.int64]  # the place in the rank's batch where each run begins
    counts: NDArray[np.int64]  # the number of this row group's rows in each run
    # `[assigned rows]`, int32: each row's place relative to its run's start; empty if each run has
    # only rows of this row group, in order
    places: NDArray[np.int32]


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class RowAssigner:
    """Computes the places of a chunk's rows in batches, one row group at a time, from any thread.

    Args:
        lanes: The lanes of the rank.
        load: The rows of the chunk that the rank needs, and the first step that needs them.
        rows_per_group: Rows of each row group of the chunk, in the chunk's order.
        seed: Seed of the order of rows; `None` keeps the order of the files.
        order: Function that returns the order of the chunk's rows; used instead of `seed`.

    Raises:
        SpecError: The chunk has too many rows.
    """

    def __init__(
        self,
        plan: EpochPlan,
        lanes: range,
        chunk: Chunk,
        load: Load,
        rows_per_group: Sequence[int],
        seed: int | None,
        epoch: int,
        order: Callable[[], NDArray[np.int64]] | None = None,
    ):
        if chunk.num_rows > _MOST_ROWS:
            raise SpecError(
                f"{chunk.num_rows} rows would be shuffled together; the maximum is {_MOST_ROWS}",
                hint='Choose shuffle "chunk" instead of "full", or fewer parts_per_chunk.',
            )
        self._load = load
        self._chunk = chunk
        self._bounds = np.array(list(accumulate(rows_per_group, initial=0)), np.int64)
        self._seed = seed
        self._epoch = epoch
        self._order_of_rows = order
        runs = [runs_of(plan, lanes, piece) for piece in load.pieces]
        self._steps, self._starts, self._counts = map(_joined, zip(*runs, strict=True))
        self._lock = threading.Lock()
        # row groups for which `assign` was not called yet; at 0 the order of rows is dropped
        self._left = len(rows_per_group)
        self._order: NDArray[np.int32] | None = None
        self._by_group: NDArray[np.int64] | None = None

    def assign(self, number: int) -> RowAssignment:
        """Return the rows and places of the chunk's row group `number`, counted from 0.

        Call it once for each row group.
        """
        if len(self._bounds) == 2:
            rows = self._dealt_rows()
            return RowAssignment(rows, self._steps, self._starts, self._counts, _NO_PLACES)
        with self._lock:  # the threads that load a chunk's row groups share its permutation
            if self._order is None:
                self._order = self._dealt_rows()
                self._by_group, self._splits = self._group_order(self._order)
            assert self._by_group is not None
            order, by_group = self._order, self._by_group
            self._left -= 1
            if not self._left:
                self._order = self._by_group = None
        entries = by_group[self._splits[number] : self._splits[number + 1]]
        return self._deal_entries(number, entries, order)

    def _dealt_rows(self) -> NDArray[np.int32]:
        if self._order_of_rows is not None:
            order = self._order_of_rows().astype(np.int32)
        elif self._seed is None:
            order = np.arange(self._chunk.num_rows, dtype=np.int32)
        else:
            order = row_order(self._chunk.num_rows, self._seed, self._epoch, self._load.chunk)
        pieces = [order[piece.start : piece.stop] for piece in self._load.pieces]
        return _joined(pieces)

    def _group_order(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of `rows`, stably sorted by row group, and where each group begins."""
        num_groups = len(self._bounds) - 1
        small = np.uint16 if num_groups < 2**16 else np.uint32  # NumPy sorts 16 bits by counting
        group = (np.searchsorted(self._bounds, rows, side="right") - 1).astype(small)
        splits = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=num_groups))])
        return np.argsort(group, kind="stable"), splits

    def _deal_entries(
        self, number: int, entries: NDArray[np.int64], order: NDArray[np.int32]
    ) -> RowAssignment:
        firsts = np.cumsum(self._counts) - self._counts
        cuts = np.searchsorted(entries, np.append(firsts, len(order)))
        counts = np.diff(cuts)
        places = entries - np.repeat(firsts, counts)
        used = counts > 0
        return RowAssignment(
            order[entries] - np.int32(self._bounds[number]),
            self._steps[used],
            self._starts[used],
            counts[used],
            places.astype(np.int32),
        )
