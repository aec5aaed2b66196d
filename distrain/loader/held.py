"""How many batches a rank's loader is going to hold, from its schedule: nothing is read.

`memory.py` bounds it by a formula for the worst that any order of chunks can do. Here an epoch's
own order is walked through, which tells what it will be, often half of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distrain.loader.dataset import Dataset
from distrain.loader.options import LoaderOptions
from distrain.loader.schedule import Load, epoch_chunks, plan_loads
from distrain.partition import Chunks, EpochPlan


def batches_held(
    dataset: Dataset, options: LoaderOptions, *, consumer_batches: int, num_steps: int
) -> int:
    """The most batches that a loader with these options will hold in its first epoch.

    Args:
        dataset: What it loads.
        options: How.
        consumer_batches: Batches that the consumer keeps, the one that it works on included.
        num_steps: So many are taken at most.
    """
    plan = EpochPlan(len(dataset), options.lanes, options.global_batch_size, options.drop_last)
    return most_batches_held(
        plan,
        epoch_chunks(dataset, options, 0),
        plan.lanes_of_rank(options.rank, options.num_ranks),
        decode_threads=options.decode_threads,
        prefetch_batches=options.prefetch_batches,
        consumer_batches=consumer_batches,
        num_steps=num_steps,
    )


def most_batches_held(
    plan: EpochPlan,
    chunks: Chunks,
    lanes: range,
    *,
    decode_threads: int,
    prefetch_batches: int,
    consumer_batches: int,
    num_steps: int | None = None,
) -> int:
    """The most batches that have memory at a time while a consumer is slower than the loader.

    When the batches up to some step are finished, as many row groups as there are threads have been
    loaded beyond what these needed. Every batch that a row of these went to is open; beside them
    there are the finished ones in the queue, and those that the consumer keeps.

    Args:
        plan: Deals the epoch's rows.
        chunks: The epoch's order.
        lanes: The rank's.
        decode_threads: Row groups that are loaded at a time.
        prefetch_batches: Finished batches that may wait.
        consumer_batches: Batches that the consumer keeps, the one that it works on included.
        num_steps: So many batches are taken; `None`: all of the epoch.

    >>> from distrain.partition import chunk_order
    >>> plan, chunks = EpochPlan(4000, 2, 100), chunk_order([500] * 8, 0, 0, "chunk")
    >>> most_batches_held(
    ...     plan, chunks, range(2), decode_threads=1, prefetch_batches=4, consumer_batches=1
    ... )
    24
    """
    last = plan.num_steps if num_steps is None else min(num_steps, plan.num_steps)
    rest = prefetch_batches + consumer_batches
    loads = iter(_row_groups(plan_loads(plan, chunks, lanes), chunks))
    opened = np.zeros(plan.num_steps, bool)
    most = num_open = 0
    ahead: list[Load] = []

    def load_more() -> None:
        nonlocal num_open
        while len(ahead) < decode_threads and (load := next(loads, None)) is not None:
            ahead.append(load)
            for piece in load.pieces:
                first = plan.step_of(piece.lane, piece.offset)
                end = plan.step_of(piece.lane, piece.offset + piece.stop - piece.start - 1) + 1
                num_open += int(np.count_nonzero(~opened[first:end]))
                opened[first:end] = True

    load_more()
    # The queue fills while the consumer is still at its first batch.
    for step in range(min(plan.num_steps, last + prefetch_batches)):
        while ahead and ahead[0].step <= step:
            ahead.pop(0)
            load_more()
        num_open -= int(opened[step])
        most = max(most, num_open + min(step + 1, rest))
    return most


def _row_groups(loads: Sequence[Load], chunks: Chunks) -> Iterator[Load]:
    """A load once for each of its row groups."""
    for load in loads:
        for _ in chunks[load.chunk].row_groups:
            yield load
