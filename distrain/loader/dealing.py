"""Which rows of a row group go to which batch, and where in it: numbers to numbers."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError
from distrain.loader.schedule import Load, runs_of
from distrain.partition import Chunk, EpochPlan, row_permutation

_NO_PLACES = np.empty(0, np.int32)
_MOST_ROWS = 2**31  # of a chunk: its rows are numbered by int32


@dataclass(frozen=True)
class Deal:
    """A row group's rows for one rank, run by run (a run is some rows for one batch).

    Attributes:
        rows: `[rows dealt]`, int32: rows of the row group, run after run.
        steps: The step of each run.
        starts: The place in the rank's batch where each run begins.
        counts: Rows of each run.
        places: `[rows dealt]`, int32: each row's place, from its run's start on; empty if the rows
            of a run follow each other.
    """

    rows: NDArray[np.int32]
    steps: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    places: NDArray[np.int32]


class ChunkDealer:
    """Deals a chunk's rows, one row group at a time, from any thread.

    Args:
        plan: Deals the epoch's rows to lanes and steps.
        lanes: The rank's lanes.
        chunk: The chunk that is loaded.
        load: Which of its rows the rank wants.
        rows_per_group: Rows of each of the chunk's row groups, in the chunk's order.
        seed: Of the permutation of the chunk's rows; `None` leaves them as they are.
        epoch: Which epoch.

    Raises:
        SpecError: The chunk has more than 2^31 rows.
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
    ):
        if chunk.num_rows > _MOST_ROWS:
            raise SpecError(
                f"{chunk.num_rows} rows are to be shuffled together; at most {_MOST_ROWS} can be",
                hint='Choose shuffle "chunk" instead of "full", or fewer parts_per_chunk.',
            )
        self._load = load
        self._chunk = chunk
        self._bounds = np.cumsum([0, *rows_per_group])
        self._seed = seed
        self._epoch = epoch
        runs = [runs_of(plan, lanes, piece) for piece in load.pieces]
        self._steps = np.concatenate([run.steps for run in runs])
        self._starts = np.concatenate([run.starts for run in runs])
        self._counts = np.concatenate([run.counts for run in runs])
        self._lock = threading.Lock()
        self._order: NDArray[np.int32] | None = None
        self._by_group: NDArray[np.int64] | None = None

    def deal(self, number: int) -> Deal:
        """The rows of the chunk's row group `number`, counted from 0 in the chunk."""
        if len(self._bounds) == 2:
            rows = self._dealt_rows()
            return Deal(rows, self._steps, self._starts, self._counts, _NO_PLACES)
        with self._lock:  # the threads that load a chunk's row groups share its permutation
            if self._order is None:
                self._order = self._dealt_rows()
                self._by_group, self._splits = self._group_order(self._order)
        assert self._by_group is not None
        entries = self._by_group[self._splits[number] : self._splits[number + 1]]
        return self._deal_entries(number, entries, self._order)

    def _dealt_rows(self) -> NDArray[np.int32]:
        """The rank's rows of the chunk, run after run, as row numbers of the chunk."""
        if self._seed is None:
            order = np.arange(self._chunk.num_rows, dtype=np.int32)
        else:
            wide = row_permutation(self._chunk.num_rows, self._seed, self._epoch, self._load.chunk)
            order = wide.astype(np.int32)
        pieces = [order[piece.start : piece.stop] for piece in self._load.pieces]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _group_order(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Entries of `rows` sorted by row group, else as they are; and where each group begins."""
        num_groups = len(self._bounds) - 1
        small = np.uint16 if num_groups < 2**16 else np.uint32  # NumPy sorts 16 bits by counting
        group = (np.searchsorted(self._bounds, rows, side="right") - 1).astype(small)
        splits = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=num_groups))])
        return np.argsort(group, kind="stable"), splits

    def _deal_entries(
        self, number: int, entries: NDArray[np.int64], order: NDArray[np.int32]
    ) -> Deal:
        firsts = np.cumsum(self._counts) - self._counts
        cuts = np.searchsorted(entries, np.append(firsts, len(order)))
        counts = np.diff(cuts)
        places = entries - np.repeat(firsts, counts)
        used = counts > 0
        return Deal(
            order[entries] - np.int32(self._bounds[number]),
            self._steps[used],
            self._starts[used],
            counts[used],
            places.astype(np.int32),
        )
