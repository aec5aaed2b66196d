"""Computes an upper bound of a loader's host memory, without reading rows.

Decoded rows are written to open batches: the batch of a step gets its memory when the first row for
it is decoded. A lane is a span of the epoch's order of rows, and a chunk is a set of row groups
whose rows are shuffled together (see `partition.epoch_plan` and `partition.row_order`). There are S
lanes, W ranks, B rows in a global batch, chunks of at most G rows, T decoding threads and a queue
of P batches. A rank serves c = S/W lanes. The bound considers a rank at any step s:

- At step s a lane has at most G rows of its current chunk left.
- L = 2 T row groups are loaded ahead, but at most A = max(1, L/c) for each lane, because all lanes
  may reach the ends of chunks together. Including the row group in use, at most (1 + A) G rows of a
  lane are loaded. A step takes B/S rows of a lane, so these rows are for the `2 + ((1 + A) G S - 1)
  // B` steps from s on. Loads of the next epoch or window also begin, if all their rows are for
  these steps.
- A load with a row for a step after these begins only when step s itself needs a row of the load.
  Such a load stays within the bound: lanes that share a chunk need it at the same time
  (`partition.row_order`), so its rows are for fewer steps.
- P finished batches wait in the queue. The consumer holds one and takes another.

The open batches, of B/W rows each, have (1 + A) c G rows, or about (c + L) G if lanes reach the
ends of chunks one after another. This does not depend on the table's size. There are no more open
batches than steps in an epoch, or in a window and the window before it. Consecutive epochs share
this maximum.

With `shuffle="full"` a chunk is a bucket, and the rows of all buckets are in memory.
Rows may then be for `2 + G S // B` further steps, because two lanes may share a bucket. Lists and
the reader cudf do not support buckets: the chunk is then the table, and the bound is a rank's share
of an epoch. If row groups are read in slices, G counts the rows of slices, and open decoders are
added. Dropped batches stay in the pool for reuse, so this memory is kept until `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from distrain.loader.bucketing.bucket_store import stored_row_bytes
from distrain.loader.bucketing.first_pass import Buckets, bucket_rows_bound, use_buckets
from distrain.loader.dataset import CELL_BYTES, Dataset
from distrain.loader.filling.batch_memory import tile_bytes
from distrain.loader.filling.schedule import (
    LoadSteps,
    LookAhead,
    epoch_chunks,
    open_groups,
    plan_loads,
    steps_of,
)
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.reading.reader import ANY_TABLE, ReaderKind

_DECODED_CELL_BYTES = 8  # the maximum bytes of a decoded value on the host
_SPARE_ROWS = 64  # extra rows of the pool's blocks, so that slightly larger batches fit
_CONSUMER_BATCHES = 2
# Bytes for each row group: its place in the table (16), in parts (4), in chunks (16), its pieces
# (40), their loads (16), and temporaries of their sorting; then chunks, pieces and loads of the
# previous epoch.
_SCHEDULE_BYTES_PER_GROUP = 232
# Philox keys and row numbers (8 bytes each), then the order (4) and its cut to lanes (4).
_ORDER_BYTES_PER_ROW = 24
# For a row group whose rows go to buckets: keys, bucket numbers, and temporaries of sorting.
_SCATTER_BYTES_PER_ROW = 48
# For each column: its dictionary, compressed and decoded, a page, and the read-ahead. Writers limit
# dictionaries and pages to 1 MiB. A row group of Criteo's 40 columns took 33 MB.
_STREAM_BYTES_PER_COLUMN = 2 << 20


@dataclass(frozen=True)
class LoaderMemory:
    """An upper bound of the host memory of one rank's loader.

    Not included: lists, whose length is unknown before they are read; memory of Arrow and Python
    themselves; footers that readers keep (for long footers, 8 bytes a row group); and further
    batches that the consumer keeps.

    Attributes:
        batches: Number of batches that are open, finished, or with the consumer.
        batch_rows: Maximum number of rows of a batch.
        blocks_bytes: Bytes of the batches' flat columns; if pinned, as rounded up by torch.
        decode_bytes: For each thread, bytes of a decoded row group, or slice of a large one, of its
            compressed data, and of its tile, in which four columns are stored row by row.
        order_bytes: Bytes of the permutation of a chunk's rows, for each thread, while the rows are
            distributed to batches.
        schedule_bytes: Bytes of the table's row groups, of their selected rows, and of the epoch's
            schedule.
        streams_bytes: Bytes of the open decoders of large row groups, if their pages and
            dictionaries have the writers' default sizes.
        fetched_bytes: Bytes of prefetched ranges of remote files, including requests in flight.
        buckets_bytes: Bytes of a full shuffle's rows.
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

    @property
    def total_bytes(self) -> int:
        prepared = self.blocks_bytes + self.decode_bytes + self.order_bytes
        read = self.streams_bytes + self.fetched_bytes
        return prepared + self.schedule_bytes + read + self.buckets_bytes

    @classmethod
    def most_of(cls, bounds: Iterable[LoaderMemory]) -> LoaderMemory:
        """Return the maximum of each field: the bound of several loaders, one active at a time."""
        return cls(*map(max, zip(*map(astuple, bounds), strict=True)))


def memory_of(
    dataset: Dataset,
    options: LoaderOptions,
    *,
    reader: ReaderKind = ANY_TABLE,
    pinned: bool | None = None,
    decoded_row_bytes: int | None = None,
    compressed_group_bytes: int = 0,
) -> LoaderMemory:
    """Return the memory bound of a loader with these options.

    Args:
        reader: The loader's reader.
        pinned: Whether blocks are page-locked; by default as in the options.
        decoded_row_bytes: Bytes of a row's flat columns in the files' types; by default the
            maximum possible.
        compressed_group_bytes: Compressed bytes of the largest row group; 0 leaves them out.
    """
    plans = [_plan_of(one, options) for one in dataset.windows]
    return LoaderMemory.most_of(
        _memory_of_window(
            one,
            options,
            reader,
            pinned,
            decoded_row_bytes,
            compressed_group_bytes,
            steps_before(plans, number, options),
        )
        for number, one in enumerate(dataset.windows)
    )


def steps_before(plans: Sequence[EpochPlan], window: int, options: LoaderOptions) -> int:
    """Return how many steps of window `window - 1` may be open together with steps of `window`.

    The batch of an open step is being filled. Returns 0 for the first window and a full shuffle.
    """
    # In a full shuffle each step may need all chunks of its window.
    return 0 if not window or options.shuffle == "full" else plans[window - 1].num_steps


def _plan_of(dataset: Dataset, options: LoaderOptions) -> EpochPlan:
    return EpochPlan(len(dataset), options.lanes, options.global_batch_size, options.drop_last)


def _memory_of_window(
    dataset: Dataset,
    options: LoaderOptions,
    reader: ReaderKind,
    pinned: bool | None,
    decoded_row_bytes: int | None,
    compressed_group_bytes: int,
    before: int,
) -> LoaderMemory:
    if decoded_row_bytes is None:
        decoded_row_bytes = _DECODED_CELL_BYTES * dataset.row_bytes // CELL_BYTES
    has_buckets = use_buckets(options, dataset.columns, reader)
    # If large row groups are read in slices, chunks consist of slices.
    chunk_rows = largest_chunk_rows(dataset, options, reader)
    group_rows = dataset.slices.most_read
    plan, row_bytes, threads = _plan_of(dataset, options), dataset.row_bytes, options.decode_threads
    lanes = len(plan.lanes_of_rank(options.rank, options.num_ranks))
    steps = open_steps(
        plan, lanes, chunk_rows, options.loads_ahead, before=before, has_buckets=has_buckets
    )
    batches = steps + options.prefetch_batches + _CONSUMER_BATCHES
    # The maximum rows of a step on a rank: lanes may differ by one row.
    batch_rows = plan.rows_below(lanes, min(plan.global_batch_size, plan.num_rows))
    block_bytes = row_bytes * (batch_rows + _SPARE_ROWS)
    if options.pin_memory if pinned is None else pinned:
        block_bytes = 1 << (row_bytes * batch_rows - 1).bit_length()  # as torch rounds it
    chunks_dealt = 1 if options.shuffle == "full" and not has_buckets else threads
    order_bytes = chunks_dealt * _ORDER_BYTES_PER_ROW * chunk_rows
    buckets_bytes = 0
    if has_buckets:
        order_bytes = max(order_bytes, threads * _SCATTER_BYTES_PER_ROW * group_rows)
        buckets_bytes = _bucket_bytes(plan, lanes, row_bytes, chunk_rows)
    largest = int(dataset.table.compact.group_rows.max())
    decoded_bytes = group_rows * decoded_row_bytes + compressed_group_bytes * group_rows // largest
    decoded_bytes += tile_bytes(group_rows, row_bytes // CELL_BYTES)
    selected = sum(len(some.bits) for some in dataset.table.compact.selections.values())
    is_fetched = dataset.any_remote and not reader.on_gpu
    return LoaderMemory(
        batches=batches,
        batch_rows=batch_rows,
        blocks_bytes=batches * block_bytes,
        decode_bytes=threads * decoded_bytes,
        order_bytes=order_bytes,
        schedule_bytes=_SCHEDULE_BYTES_PER_GROUP * len(dataset.slices) + selected,
        streams_bytes=_streams_bytes(
            dataset, options, reader, decoded_row_bytes, compressed_group_bytes
        ),
        fetched_bytes=options.fetch.most_bytes if is_fetched else 0,
        buckets_bytes=buckets_bytes,
    )


def _streams_bytes(
    dataset: Dataset,
    options: LoaderOptions,
    reader: ReaderKind,
    decoded_row_bytes: int,
    compressed_group_bytes: int,
) -> int:
    """Return the bytes of a reader's open decoders of large row groups, and of waiting slices.

    A waiting slice is decoded, but not yet requested by a thread.

    The sizes are as for `memory_of`. Returns 0 if no row group is large, or if the reader decodes
    on a GPU.
    """
    groups = open_groups(dataset, options)
    if not groups or reader.on_gpu:
        return 0
    sizes, threads = dataset.slices.sizes, options.decode_threads
    whole = 2 * decoded_row_bytes * int(dataset.table.compact.rows.max())
    of_group = min(_STREAM_BYTES_PER_COLUMN * len(dataset.columns), whole)
    if dataset.any_remote:
        of_group += compressed_group_bytes  # fetched row groups are in memory, compressed
    waiting = (threads - 1) * decoded_row_bytes * int(sizes.max())
    return (groups + threads) * (of_group + waiting)


def _bucket_bytes(plan: EpochPlan, lanes: int, row_bytes: int, bucket_rows: int) -> int:
    # The rank's share, and the other rows of the buckets at the ends of its share.
    rows = min(plan.num_rows, plan.rows_below(lanes, plan.num_rows) + 1 + 2 * bucket_rows)
    return rows * stored_row_bytes(row_bytes // CELL_BYTES)


def largest_chunk_rows(
    dataset: Dataset, options: LoaderOptions, reader: ReaderKind = ANY_TABLE
) -> int:
    """Return the maximum number of rows of a chunk, over all windows.

    With `shuffle="chunk"`, it is the sum of the `parts_per_chunk` largest parts, in which a large
    row group counts as its largest slice. With `"none"`, it is the largest row group or slice. With
    `"full"`, it is a bound of the rows of a bucket, or all rows of a window if buckets are not
    used.
    """
    return max(_largest_chunk_rows(one, options, reader) for one in dataset.windows)


def _largest_chunk_rows(dataset: Dataset, options: LoaderOptions, reader: ReaderKind) -> int:
    if use_buckets(options, dataset.columns, reader):
        return bucket_rows_bound(len(dataset))
    if options.shuffle == "full":
        return len(dataset)
    sizes = dataset.slices.sizes
    if options.shuffle == "none":
        return int(sizes.max())
    parts = np.add.reduceat(sizes, dataset.parts.bounds[:-1])
    return int(np.sort(parts)[-options.parts_per_chunk :].sum())


def open_steps_of(
    dataset: Dataset, options: LoaderOptions, before: int, reader: ReaderKind = ANY_TABLE
) -> int:
    """Return the number of steps whose batches may be open on a rank at a time.

    At most `before` of them belong to the previous window (see `steps_before`).
    """
    return open_steps(
        _plan_of(dataset, options),
        options.lanes // options.num_ranks,
        _largest_chunk_rows(dataset, options, reader),
        options.loads_ahead,
        before=before,
        has_buckets=use_buckets(options, dataset.columns, reader),
    )


def open_steps(
    plan: EpochPlan,
    lanes: int,
    chunk_rows: int,
    loads_ahead: int,
    *,
    before: int = 0,
    has_buckets: bool = False,
) -> int:
    """Return the number of steps whose batches may be open at a time on a rank with `lanes` lanes.

    See the module's docstring for the formula.

    Args:
        chunk_rows: Rows of the largest chunk.
        loads_ahead: As in `LoaderOptions`.
        before: The result of `steps_before`.
        has_buckets: Whether a full shuffle writes the rows to buckets.

    >>> plan = EpochPlan(num_rows=1_000_000, lanes=24, global_batch_size=65_536)
    >>> open_steps(plan, lanes=24, chunk_rows=4_096, loads_ahead=12)
    4
    """
    rows = -(-chunk_rows * (lanes + max(lanes, loads_ahead)) // lanes)  # loaded rows of a lane
    steps = 2 + (rows * plan.lanes - 1) // plan.global_batch_size
    if has_buckets:  # the last bucket of a lane is the first one of the next lane
        steps += 2 + chunk_rows * plan.lanes // plan.global_batch_size
    return min(before + plan.num_steps, steps)


def batches_held(
    dataset: Dataset, options: LoaderOptions, *, consumer_batches: int, num_steps: int
) -> int:
    """Return the maximum number of batches that have memory at a time in the first epoch.

    `memory_of` gives a bound for any order of chunks; this function simulates the first epoch's
    order, with a slow consumer. At each step it counts three kinds of batches: open batches, with
    rows of the row groups loaded until then; finished batches in the queue; and batches that the
    consumer keeps.

    Args:
        consumer_batches: Number of batches that the consumer keeps, including the current one.
        num_steps: The maximum number of batches that the consumer takes.
    """
    finished = options.prefetch_batches + consumer_batches
    windows = list(dataset.windows)
    num_epoch = sum(_plan_of(one, options).num_steps for one in windows)
    if num_steps > num_epoch:  # the next epoch begins while batches of this one are left
        windows.append(windows[0])
    opened = np.zeros(sum(_plan_of(one, options).num_steps for one in windows), bool)
    loads = _planned_loads(windows, options)
    waiting = next(loads, None)
    ahead = LookAhead(options.loads_ahead)
    most = num_open = 0
    # The queue fills while the consumer still works on its last batch.
    for step in range(min(num_epoch, num_steps + options.prefetch_batches) + 1):
        while waiting is not None and ahead.may_begin(waiting[0], step):
            for span in waiting[1]:
                num_open += int(np.count_nonzero(~opened[span]))
                opened[span] = True
            waiting = next(loads, None)
        most = max(most, num_open + min(step, finished))
        num_open -= int(opened[step : step + 1].sum())
    return most


def _planned_loads(
    windows: Sequence[Dataset], options: LoaderOptions
) -> Iterator[tuple[LoadSteps, list[slice]]]:
    """Yield each load of the rank, in order, with the steps that need each of its pieces.

    Loads and pieces are explained in `filling/schedule.py`. Steps are counted over all windows.
    """
    before, plans = 0, [_plan_of(one, options) for one in windows]
    for number, one in enumerate(windows):
        epoch = int(number > 0 and one is windows[0])
        plan = plans[number]
        if use_buckets(options, one.columns, ANY_TABLE):  # buckets differ in size only by chance
            sizes = Buckets.of(len(one), options.seed, epoch).expected_sizes()
            chunks = Buckets.chunks(sizes, plan)
        else:
            chunks = epoch_chunks(one, options, epoch)
        shared = steps_before(plans, 0 if epoch else number, options)
        most = open_steps_of(one, options, shared)
        for load in plan_loads(plan, chunks, plan.lanes_of_rank(options.rank, options.num_ranks)):
            spans = [steps_of(plan, piece) for piece in load.pieces]
            slices = [slice(before + span.start, before + span.stop) for span in spans]
            yield LoadSteps.of(plan, load, most, before), slices
        before += plan.num_steps
