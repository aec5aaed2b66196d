"""The first pass of a full shuffle: reads all row groups and writes their rows to buckets.

The rows of an epoch are ordered by random keys. A bucket has the rows whose keys are in one range,
so its rows are consecutive in that order. All ranges are equal, so buckets differ in size only by
chance. Counting the keys gives the start of each bucket in the order, and sorting a bucket's keys
gives the order of its rows. Batches are then filled from buckets in the same way as from row
groups. The number of buckets does not affect the order.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.loader.backends import CpuBackend
from distrain.loader.batch import Batch
from distrain.loader.bucketing.bucket_store import BucketMemory
from distrain.loader.delivery.loads_ahead import EpochWork
from distrain.loader.filling.batch_memory import OpenBatch
from distrain.loader.filling.filler import Block
from distrain.loader.filling.schedule import RowAssignment, plan_loads
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.row_order import Chunks, forward_pieces, key_order, row_keys
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import ReaderKind

LEAST_BUCKET_ROWS = 65_536
"""The maximum mean number of rows of a bucket, in tables of up to half a billion rows.

A column of a bucket should fit in a CPU cache while its rows are read in order, and the rows of a
row group for one bucket should fill cache lines. In larger tables, buckets are larger.
"""

_COUNTED_AT_A_TIME = 1 << 20


def use_buckets(
    options: LoaderOptions, columns: tuple[WantedColumn, ...], reader: ReaderKind
) -> bool:
    """Return True if a loader with these options shuffles through buckets.

    It does for a full shuffle, unless there are list columns or the reader decodes on a GPU.
    """
    flat = not any(column.is_list for column in columns)
    return options.shuffle == "full" and flat and not reader.on_gpu


def _bucket_rows(num_rows: int) -> int:
    # With more rows in a bucket there are fewer buckets: a row group has more rows for each bucket,
    # but open batches need more memory. With this size, both the number and the size of buckets
    # grow with the square root of the table's rows.
    return max(LEAST_BUCKET_ROWS, math.isqrt(8 * num_rows))


def bucket_rows_bound(num_rows: int) -> int:
    """Return a number of rows that a bucket exceeds with a probability below one in a million.

    >>> bucket_rows_bound(6_000_000), bucket_rows_bound(1_000)
    (67516, 1000)
    """
    mean = num_rows / Buckets.of(num_rows, 0, 0).count
    return min(num_rows, math.ceil(mean + 9 * math.sqrt(mean)))


@dataclass(frozen=True)
class Buckets:
    """The buckets of an epoch: `count` equal ranges of the rows' random keys."""

    num_rows: int
    seed: int
    epoch: int
    count: int

    @classmethod
    def of(cls, num_rows: int, seed: int, epoch: int) -> Buckets:
        return cls(num_rows, seed, epoch, -(-num_rows // _bucket_rows(num_rows)))

    def keys(self, first: int, count: int) -> NDArray[np.uint64]:
        return row_keys(self.num_rows, self.seed, self.epoch, first, count)

    def numbers(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the number of the bucket of each key."""
        numbers = keys >> np.uint64(32)
        numbers *= np.uint64(self.count)
        numbers >>= np.uint64(32)
        return numbers

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of rows of each bucket, `[count]`, by drawing the keys of all rows."""
        sizes = np.zeros(self.count, np.int64)
        for first in range(0, self.num_rows, _COUNTED_AT_A_TIME):
            count = min(_COUNTED_AT_A_TIME, self.num_rows - first)
            numbers = self.numbers(self.keys(first, count)).view(np.int64)
            sizes += np.bincount(numbers, minlength=self.count)
        return sizes

    def expected_sizes(self) -> NDArray[np.int64]:
        """Return approximate `sizes`, `[count]`, as if all buckets were equally large."""
        bounds = np.arange(self.count + 1, dtype=np.int64) * self.num_rows // self.count
        return np.diff(bounds)

    @staticmethod
    def chunks(sizes: NDArray[np.int64], plan: EpochPlan) -> Chunks:
        """Return the chunks of a full shuffle, one for each bucket that is not empty, in order.

        `sizes` has the number of rows of each bucket.

        All lanes traverse the chunks forwards, as if all were one chunk (see `lane_pieces`).
        """
        groups = np.flatnonzero(sizes).astype(np.int32)
        starts = np.cumsum(np.append(0, sizes[groups]))
        bounds = np.arange(len(groups) + 1, dtype=np.int32)
        dealt = forward_pieces(plan, Chunks(groups, bounds, starts))
        return Chunks(groups, bounds, starts, dealt)


_NO_PLACES = np.empty(0, np.int32)


@dataclass(frozen=True)
class FirstPass:
    buckets: Buckets  # the buckets of the epoch
    num_columns: int  # number of flat columns

    def __call__(
        self,
        work: EpochWork,
        backend: CpuBackend,
        pool: Executor,
        is_cancelled: Callable[[], bool],
    ) -> tuple[EpochWork, BucketBackend] | None:
        """Write the rank's rows to buckets; return an `EpochWork` and a backend that read them.

        Waits until `pool` has decoded all row groups. Returns `None` if `is_cancelled` returned
        True meanwhile. Raises the errors of reading, and a `MemoryError` if the buckets do not fit.
        """
        sizes = self.buckets.sizes()
        chunks = self.buckets.chunks(sizes, work.plan)
        loads = plan_loads(work.plan, chunks, work.lanes, work.steps.start)
        buckets = sorted(chunks[load.chunk].row_groups[0] for load in loads)
        needed = {number: int(sizes[number]) for number in buckets}
        store = BucketMemory(needed, self.num_columns)
        try:
            rest = [work.row_groups[place].num_rows for place in range(len(work.row_groups))]
            firsts = accumulate(rest, initial=0)
            tasks = zip(work.row_groups, firsts, strict=False)
            scatter = _Scatter(self.buckets, needed, backend, store)
            expected = work.announced(iter(work.row_groups))
            threads = work.options.decode_threads
            try:
                is_done = _run_all(scatter, tasks, pool, threads, is_cancelled, expected.passed)
            finally:
                expected.close()
            if not is_done:
                store.close()
                return None
        except BaseException:
            store.close()
            raise
        later = replace(
            work,
            chunks=chunks,
            row_groups=_BucketGroups(sizes),
            first_pass=None,
            expect=None,
            order_of=lambda chunk: key_order(
                store.keys(chunks[chunk].row_groups[0]), self.buckets.num_rows
            ),
        )
        return later, BucketBackend(backend, store)


def _run_all(
    run: Callable[[RowGroup, int], None],
    tasks: Any,
    pool: Executor,
    threads: int,
    is_cancelled: Callable[[], bool],
    report_done: Callable[[int], None],
) -> bool:
    """Call `run` for all tasks, a few at a time, in `pool`; return False if cancelled meanwhile.

    Waits for all tasks that were begun, also if it is cancelled or a task fails; then raises the
    error. `report_done` gets the number of leading tasks that are done.
    """
    in_flight: deque[Future[None]] = deque()
    try:
        for number, (group, first) in enumerate(tasks):
            if is_cancelled():
                return False
            if len(in_flight) > threads:
                in_flight.popleft().result()
                report_done(number - len(in_flight))
            in_flight.append(pool.submit(run, group, first))
        while in_flight:
            in_flight.popleft().result()
        return True
    finally:
        for future in in_flight:  # after the return, no thread may write to the store
            if not future.cancel():
                future.exception()


class _Scatter:
    """Writes the rows of a row group, with their sort keys, to the buckets that the rank needs.

    `needed` has the numbers of these buckets as keys. When the object is called, `first` is the
    number in the table of the row group's first row.
    """

    def __init__(
        self,
        buckets: Buckets,
        needed: Mapping[int, int],
        backend: CpuBackend,
        store: BucketMemory,
    ):
        self._buckets = buckets
        self._backend = backend
        self._store = store
        self._all = len(needed) == buckets.count
        self._is_needed = np.zeros(buckets.count + 1, bool)
        self._is_needed[list(needed)] = True

    def __call__(self, group: RowGroup, first: int) -> None:
        keys = self._buckets.keys(first, group.num_rows)
        numbers = self._buckets.numbers(keys)
        small = np.uint16 if self._buckets.count < 2**16 else np.uint32
        bucket = numbers.astype(small)  # NumPy sorts 16 bits by counting
        rows = np.argsort(bucket, kind="stable").astype(np.int32)
        counts = np.bincount(bucket, minlength=self._buckets.count)
        if not self._all:
            rows = rows[self._is_needed[bucket[rows]]]
            counts = counts * self._is_needed[:-1]
        used = np.flatnonzero(counts).tolist()
        if not used:
            return
        lengths = counts[used].astype(np.int64)
        starts = self._store.reserve(used, lengths.tolist())
        steps = np.zeros(len(used), np.int64)
        assignment = RowAssignment(rows, steps, np.array(starts, np.int64), lengths, _NO_PLACES)
        blocks = [self._store.columns(number) for number in used]
        places = [OpenBatch(block.shape[1], block) for block in blocks]
        self._backend.load(group, assignment, places)
        parts = np.split(keys[rows], np.cumsum(lengths)[:-1])
        for number, start, part in zip(used, starts, parts, strict=True):
            self._store.keys(number)[start : start + len(part)] = part


class _BucketGroups(LazySequence[RowGroup]):
    def __init__(self, sizes: NDArray[np.int64]):
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def _make(self, place: int) -> RowGroup:
        return RowGroup("", place, int(self._sizes[place]))


class BucketBackend:
    """The backend of a full shuffle: fills batches from buckets instead of row groups.

    `inner` creates and finishes the batches.
    """

    num_lists = 0

    def __init__(self, inner: CpuBackend, store: BucketMemory):
        self._inner = inner
        self._store = store

    def new_block(self, num_rows: int) -> Block:
        return self._inner.new_block(num_rows)

    def load(
        self, group: RowGroup, assignment: RowAssignment, batches: Sequence[OpenBatch[Block]]
    ) -> None:
        start_s = time.perf_counter()
        self._inner.copy_rows(self._store.columns(group.index), assignment, batches)
        self._inner.stats.add(fill_s=time.perf_counter() - start_s)

    def finish(self, batch: OpenBatch[Block]) -> Batch:
        return self._inner.finish(batch)

    def close(self) -> None:
        self._store.close()
        self._inner.close()
