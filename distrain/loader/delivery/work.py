"""The work of an epoch: which batches to make, and the backend that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distrain.loader.batch import Batch
from distrain.loader.filling.batch_memory import OpenBatch
from distrain.loader.filling.schedule import Deal
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import Chunks
from distrain.loader.partition.table import RowGroup
from distrain.loader.reading.reader import Expected


class Backend(Protocol):
    @property
    def num_lists(self) -> int: ...

    def new_block(self, num_rows: int) -> Any: ...

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        """Announce the row groups that will be loaded, in this order; see `Reader.expect`."""
        ...

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Any]]) -> None:
        """Write a row group's rows to `batches`, which has the batch of each run of `deal`.

        Thread-safe.
        """
        ...

    def finish(self, batch: OpenBatch[Any]) -> Batch: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class EpochWork:
    """Everything that is needed to make the batches of some steps of an epoch or window."""

    plan: EpochPlan
    chunks: Chunks
    row_groups: Sequence[RowGroup]
    options: LoaderOptions
    epoch: int
    steps: range  # of the plan
    open_steps: int  # steps whose batches may be open, from the current one on
    new_backend: Callable[[], Backend]  # called in the producer's thread
    # Runs before the first batch, if set. Returns the work and the backend to use instead; `None`
    # if it was cancelled.
    first_pass: Preparation | None = None
    # Returns the order of a chunk's rows by the chunk's number; by default `row_permutation`.
    order_of: Callable[[int], NDArray[np.int64]] | None = None
    any_remote: bool = True  # whether a file may be remote, which readers prefetch

    @property
    def lanes(self) -> range:
        return self.plan.lanes_of_rank(self.options.rank, self.options.num_ranks)

    def rows_in(self, step: int) -> int:
        return self.plan.rank_rows(step, self.options.rank, self.options.num_ranks)


Preparation = Callable[
    [EpochWork, Any, ThreadPoolExecutor, Callable[[], bool]], tuple[EpochWork, Backend] | None
]
