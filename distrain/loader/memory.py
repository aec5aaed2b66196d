"""The most that a loader holds in host memory, computed without reading rows.

Rows wait in open batches: the batch of a step gets its memory when the first row for it is
decoded. With S lanes, W ranks, B rows in a global batch, chunks of at most G rows and T decoding
threads, a rank serves c = S/W lanes. It works at step s.

- A lane that is in a chunk at step s is at its end at most G rows later.
- L = T + 1 row groups are loaded ahead. Each lane comes to a new chunk at least every G rows, so
  these lie among the next ceil(L/c) chunks of each lane.
- So all rows that have been placed are among each lane's next (1 + ceil(L/c)) G rows, and a lane
  gives B/S rows a step: `2 + ((1 + ceil(L/c)) G S - 1) // B` steps are open, s included. (Lanes
  that share a chunk come to it together, see `partition.pieces`.)
- P finished batches wait in the queue, and the consumer holds one while it takes another.
- A window's row groups are loaded from when those of the one before are: then each lane is in its
  last chunk, and `2 + (G S - 1) // B` batches are left of that window.

That many batches, or those of the whole epoch if it has fewer, of B/W rows each: with L <= c and P
small about 2 c G rows, whatever the table's size. The bound is reached where all lanes come to the
ends of chunks at the same step, which happens if a lane's rows are a multiple of G; else about
(c + L) G rows are open. With `shuffle="full"` a chunk is a bucket, and the rows of all buckets lie
in memory or in a file; where lists or the reader cudf do without buckets, the chunk is the table,
and the bound a rank's share of an epoch. Of row groups that are read in slices, a slice counts as a
row group does here, and decoders that stay open come on top. Batches that were dropped stay in the
pool for the next ones, so this is what is kept until `close`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import numpy as np

from distrain.loader.bucketing import (
    Buckets,
    bucket_rows_bound,
    staged_bytes,
    stored_row_bytes,
    use_buckets,
)
from distrain.loader.dataset import CELL_BYTES, Dataset
from distrain.loader.filling import (
    Load,
    epoch_chunks,
    open_groups,
    plan_loads,
    tile_bytes,
)
from distrain.loader.options import LoaderOptions
from distrain.partition import EpochPlan
from distrain.spec import ANY_TABLE, ReaderFacts

_SPARE_ROWS = 64  # what the pool adds to a block, so that batches of a few rows more fit
_CONSUMER_BATCHES = 2
# A row group's place in the table (16), in parts (4), in chunks (16), its pieces (40), their loads
# (16), and what sorts these while they are planned.
_SCHEDULE_BYTES_PER_GROUP = 160
# Philox' keys and the row numbers (8 bytes each), then the order (4) and its cut to lanes (4).
_ORDER_BYTES_PER_ROW = 24
# Of a row group whose rows go to buckets: keys, buckets, and what sorts them.
_SCATTER_BYTES_PER_ROW = 48
# A column's dictionary, as it was read and decoded, a page, and what is read ahead. Writers end
# dictionaries and pages at 1 MiB; of 40 columns of Criteo's shape a row group took 33 MB.
_STREAM_BYTES_PER_COLUMN = 2 << 20


@dataclass(frozen=True)
class LoaderMemory:
    """The most that one rank's loader holds on the host for one epoch.

    It leaves out lists, whose length is unknown before they are read, memory of Arrow and Python
    themselves, footers that readers keep (8 bytes a row group of long ones), and batches that the
    consumer keeps.

    Attributes:
        batches: Batches that are open, finished, or with the consumer.
        batch_rows: Rows of each batch.
        blocks_bytes: Bytes of the batches' flat columns; of pinned memory as torch rounds them up.
        decode_bytes: Bytes of decoded row groups, or slices of large ones, one a thread, and of the
            tiles in which four of their columns lie row by row.
        order_bytes: Bytes of permutations of chunks while they are dealt, one a thread.
        schedule_bytes: Bytes of the table's row groups, of which rows of them are taken, and of the
            epoch's schedule.
        streams_bytes: Bytes of the decoders that are open in large row groups, where their pages
            and dictionaries have the sizes that writers give them.
        fetched_bytes: Bytes of remote files that were fetched ahead, or are being fetched.
        buckets_bytes: Bytes of a full shuffle's rows in memory, or of those on their way to a file
            and from it.
        disk_bytes: Bytes of that file; no part of the sum.
    """

    batches: int
    batch_rows: int
    blocks_bytes: int
    decode_bytes: int
    order_bytes: int
    schedule_bytes: int = 0
    streams_bytes: int = 0
    fetched_bytes: int = 0
    buckets_bytes: int = 0
    disk_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        prepared = self.blocks_bytes + self.decode_bytes + self.order_bytes
        read = self.streams_bytes + self.fetched_bytes
        return prepared + self.schedule_bytes + read + self.buckets_bytes

    @classmethod
    def most_of(cls, bounds: Iterable[LoaderMemory]) -> LoaderMemory:
        """The most of each, where one holds at a time."""
        return cls(*map(max, zip(*map(astuple, bounds), strict=True)))


def memory_of(
    dataset: Dataset,
    options: LoaderOptions,
    *,
    reader: ReaderFacts = ANY_TABLE,
    pinned: bool | None = None,
    decoded_row_bytes: int | None = None,
    compressed_group_bytes: int = 0,
) -> LoaderMemory:
    """The most that a loader with these options holds.

    Args:
        reader: Its reader.
        pinned: Whether blocks are page-locked; by default what the options say.
        decoded_row_bytes: Bytes of a row's flat columns as the files have them; by default the
            most that there can be.
    """
    bound = LoaderMemory.most_of(
        _memory_of_window(one, options, reader, pinned, decoded_row_bytes, compressed_group_bytes)
        for one in dataset.windows
    )
    more = _left_of_window(dataset, options, reader)
    more_bytes = more * (bound.blocks_bytes // bound.batches)
    return replace(
        bound, batches=bound.batches + more, blocks_bytes=bound.blocks_bytes + more_bytes
    )


def _left_of_window(dataset: Dataset, options: LoaderOptions, reader: ReaderFacts) -> int:
    """The most batches that are left of a window when threads begin with the next one."""
    if len(dataset.windows) == 1 or options.shuffle == "full":
        return 0
    # All row groups are loaded: each lane is in its last chunk.
    return max(
        open_steps(_plan_of(one, options), 1, _largest_chunk_rows(one, options, reader), 0)
        for one in dataset.windows
    )


def _plan_of(dataset: Dataset, options: LoaderOptions) -> EpochPlan:
    return EpochPlan(len(dataset), options.lanes, options.global_batch_size, options.drop_last)


def _memory_of_window(
    dataset: Dataset,
    options: LoaderOptions,
    reader: ReaderFacts,
    pinned: bool | None,
    decoded_row_bytes: int | None,
    compressed_group_bytes: int,
) -> LoaderMemory:
    if decoded_row_bytes is None:
        decoded_row_bytes = reader.cell_bytes * dataset.row_bytes // CELL_BYTES
    read_rows, largest = dataset.slices.most_read, int(dataset.table.compact.group_rows.max())
    bound = memory_bound(
        len(dataset),
        dataset.row_bytes,
        options,
        chunk_rows=largest_chunk_rows(dataset, options, reader),
        group_rows=read_rows,
        has_buckets=use_buckets(options, dataset.columns, reader),
        streams_bytes=streams_bytes_of(
            dataset, options, reader, decoded_row_bytes, compressed_group_bytes
        ),
        pinned=options.pin_memory if pinned is None else pinned,
        decoded_row_bytes=decoded_row_bytes,
        compressed_group_bytes=compressed_group_bytes * read_rows // largest,
        num_groups=len(dataset.slices),
    )
    selected = sum(len(some.bits) for some in dataset.table.compact.selections.values())
    bound = replace(bound, schedule_bytes=bound.schedule_bytes + selected)
    if not reader.fetches or not dataset.any_remote:
        return bound
    return replace(bound, fetched_bytes=options.fetch.most_bytes)


def streams_bytes_of(
    dataset: Dataset,
    options: LoaderOptions,
    reader: ReaderFacts,
    decoded_row_bytes: int,
    compressed_group_bytes: int,
) -> int:
    """What a reader's open decoders hold, and slices that wait for a thread."""
    groups = open_groups(dataset, options)
    if not groups or not reader.keeps_decoders:
        return 0
    sizes, threads = dataset.slices.sizes, options.decode_threads
    whole = 2 * decoded_row_bytes * int(dataset.table.compact.rows.max())
    of_group = min(_STREAM_BYTES_PER_COLUMN * len(dataset.columns), whole)
    if dataset.any_remote:
        of_group += compressed_group_bytes  # of which an image is in memory
    waiting = (threads - 1) * decoded_row_bytes * int(sizes.max())
    return (groups + threads) * (of_group + waiting)


def memory_bound(
    num_rows: int,
    row_bytes: int,
    options: LoaderOptions,
    *,
    chunk_rows: int,
    group_rows: int,
    pinned: bool,
    decoded_row_bytes: int,
    compressed_group_bytes: int,
    num_groups: int,
    streams_bytes: int = 0,
    has_buckets: bool = False,
) -> LoaderMemory:
    """The most of a table that need not be there; of large row groups the numbers are of slices.

    `row_bytes` is of a row in a batch, `compressed_group_bytes` of the largest row group, or 0.
    """
    plan = EpochPlan(num_rows, options.lanes, options.global_batch_size, options.drop_last)
    lanes = len(plan.lanes_of_rank(options.rank, options.num_ranks))
    threads = options.decode_threads
    steps = open_steps(plan, lanes, chunk_rows, options.loads_ahead)
    if has_buckets:  # where a lane ends, and its neighbour began with the same bucket
        steps += 2 + chunk_rows * plan.lanes // plan.global_batch_size
    batches = min(plan.num_steps, steps + options.prefetch_batches + _CONSUMER_BATCHES)
    # The most rows of one step on a rank: each of its lanes may have one more than another.
    batch_rows = plan.rows_below(lanes, min(plan.global_batch_size, plan.num_rows))
    block_bytes = row_bytes * (batch_rows + _SPARE_ROWS)
    if pinned:
        block_bytes = 1 << (row_bytes * batch_rows - 1).bit_length()  # as torch rounds it
    chunks_dealt = 1 if options.shuffle == "full" and not has_buckets else threads
    order_bytes = chunks_dealt * _ORDER_BYTES_PER_ROW * chunk_rows
    buckets_bytes = disk_bytes = 0
    if has_buckets:
        order_bytes = max(order_bytes, threads * _SCATTER_BYTES_PER_ROW * group_rows)
        buckets_bytes, disk_bytes = _bucket_bytes(plan, lanes, row_bytes, chunk_rows, options)
    decoded_bytes = group_rows * decoded_row_bytes + compressed_group_bytes
    decoded_bytes += tile_bytes(group_rows, row_bytes // CELL_BYTES)
    return LoaderMemory(
        batches=batches,
        batch_rows=batch_rows,
        blocks_bytes=batches * block_bytes,
        decode_bytes=threads * decoded_bytes,
        order_bytes=order_bytes,
        schedule_bytes=_SCHEDULE_BYTES_PER_GROUP * num_groups,
        streams_bytes=streams_bytes,
        buckets_bytes=buckets_bytes,
        disk_bytes=disk_bytes,
    )


def _bucket_bytes(
    plan: EpochPlan, lanes: int, row_bytes: int, bucket_rows: int, options: LoaderOptions
) -> tuple[int, int]:
    num_columns = row_bytes // CELL_BYTES
    # The rank's share, and the rest of the buckets at its ends.
    rows = min(plan.num_rows, plan.rows_below(lanes, plan.num_rows) + 1 + 2 * bucket_rows)
    stored = rows * stored_row_bytes(num_columns)
    if options.shuffle_dir is None:
        return stored, 0
    buckets = -(-rows * Buckets.of(plan.num_rows, 0, 0).count // max(plan.num_rows, 1))
    read = options.decode_threads * bucket_rows * stored_row_bytes(num_columns)
    return staged_bytes(num_columns, buckets + 1) + read, stored


def largest_chunk_rows(
    dataset: Dataset, options: LoaderOptions, reader: ReaderFacts = ANY_TABLE
) -> int:
    """Rows of the largest chunk that an epoch can have: the largest parts may meet."""
    return max(_largest_chunk_rows(one, options, reader) for one in dataset.windows)


def _largest_chunk_rows(dataset: Dataset, options: LoaderOptions, reader: ReaderFacts) -> int:
    if use_buckets(options, dataset.columns, reader):
        return bucket_rows_bound(len(dataset))
    if options.shuffle == "full":
        return len(dataset)
    sizes = dataset.slices.sizes
    if options.shuffle == "none":
        return int(sizes.max())
    parts = np.add.reduceat(sizes, dataset.parts.bounds[:-1])
    return int(np.sort(parts)[-options.parts_per_chunk :].sum())


def open_steps(plan: EpochPlan, lanes: int, chunk_rows: int, loads_ahead: int) -> int:
    """Steps whose batches may be open at a time on a rank that serves `lanes` lanes.

    >>> plan = EpochPlan(num_rows=1_000_000, lanes=24, global_batch_size=65_536)
    >>> open_steps(plan, lanes=24, chunk_rows=4_096, loads_ahead=3)
    4
    """
    chunks_ahead = -(-loads_ahead // lanes)
    rows_ahead = (1 + chunks_ahead) * chunk_rows
    return min(plan.num_steps, 2 + (rows_ahead * plan.lanes - 1) // plan.global_batch_size)


def batches_held(
    dataset: Dataset, options: LoaderOptions, *, consumer_batches: int, num_steps: int
) -> int:
    """The most batches that have memory at a time in the first epoch, for a slow consumer.

    `memory_of` bounds it for any order of chunks. This follows the epoch's own order, often to half
    of that. When the batches up to some step are finished, `loads_ahead` row groups have been
    loaded beyond what these needed. Every batch that a row of these went to is open; beside them
    there are the finished ones in the queue, and those that the consumer keeps.

    Args:
        consumer_batches: Batches that the consumer keeps, including the one that it works on.
        num_steps: The most batches that the consumer takes.
    """
    most = max(_batches_held(one, options, consumer_batches, num_steps) for one in dataset.windows)
    return most + _left_of_window(dataset, options, ANY_TABLE)


def _batches_held(
    dataset: Dataset, options: LoaderOptions, consumer_batches: int, num_steps: int
) -> int:
    plan = _plan_of(dataset, options)
    if use_buckets(options, dataset.columns, ANY_TABLE):  # equally large, but for chance
        chunks = Buckets.chunks(Buckets.of(len(dataset), options.seed, 0).expected_sizes(), plan)
    else:
        chunks = epoch_chunks(dataset, options, 0)
    schedule = plan_loads(plan, chunks, plan.lanes_of_rank(options.rank, options.num_ranks))
    loads = (load for load in schedule for _ in chunks[load.chunk].row_groups)
    finished = options.prefetch_batches + consumer_batches
    opened = np.zeros(plan.num_steps, bool)
    most = num_open = 0
    ahead: list[Load] = []

    def load_more() -> None:
        nonlocal num_open
        while len(ahead) < options.loads_ahead and (load := next(loads, None)) is not None:
            ahead.append(load)
            for piece in load.pieces:
                first = plan.step_of(piece.lane, piece.offset)
                end = plan.step_of(piece.lane, piece.offset + piece.stop - piece.start - 1) + 1
                num_open += int(np.count_nonzero(~opened[first:end]))
                opened[first:end] = True

    load_more()
    # The queue fills while the consumer is still at its first batch.
    for step in range(min(plan.num_steps, num_steps + options.prefetch_batches)):
        while ahead and ahead[0].step <= step:
            ahead.pop(0)
            load_more()
        num_open -= int(opened[step])
        most = max(most, num_open + min(step + 1, finished))
    return most
