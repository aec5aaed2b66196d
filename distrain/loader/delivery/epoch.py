"""An epoch's batches: threads load row groups ahead, and an iterator hands out whole batches.

A pool of threads loads row groups in an order fixed beforehand, and each writes its rows to their
final places in the batches of the coming steps. One thread (`produce`) delivers these in the order
of the steps: a batch is whole when all loads that its step needs are done. The order in which
threads decode does not affect the batches, so any number of threads gives the same stream.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distrain.batch import Batch
from distrain.loader.delivery.channel import Channel, End, Failure, Ready
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.delivery.transfer import Delivery
from distrain.loader.filling import (
    ChunkDealer,
    Deal,
    NarrowBatch,
    OpenBatch,
    OpenBatches,
    plan_loads,
)
from distrain.loader.options import LoaderOptions
from distrain.loader.own_threads import in_own_thread, mark_own_thread
from distrain.loader.reading import Expected
from distrain.partition import Chunks, EpochPlan, RowGroup
from distrain.storage import stop_retrying_when


class Backend(Protocol):
    @property
    def num_lists(self) -> int: ...

    def new_block(self, num_rows: int) -> Any: ...

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        """Look ahead to the row groups that will be loaded, in this order."""
        ...

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Any]]) -> None:
        """Write a row group's rows to the batches of the deal's runs; from any thread."""
        ...

    def finish(self, batch: OpenBatch[Any]) -> Batch | NarrowBatch: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class EpochWork:
    plan: EpochPlan
    chunks: Chunks
    row_groups: Sequence[RowGroup]
    options: LoaderOptions
    epoch: int
    start_step: int
    new_backend: Callable[[], Backend]  # called in the producer's thread
    delivery: Delivery
    set_up_thread: Callable[[], None] = lambda: None  # called first by each thread
    # Runs before the first batch is made, if set: gives what makes the batches instead of the work
    # and its backend; `None` if it was cancelled.
    first_pass: Preparation | None = None
    # the order of a chunk's rows, by its number; by default that of `row_permutation`
    order_of: Callable[[int], NDArray[np.int64]] | None = None
    any_remote: bool = True  # whether a file may be a remote one, which readers fetch ahead

    @property
    def lanes(self) -> range:
        return self.plan.lanes_of_rank(self.options.rank, self.options.num_ranks)

    def rows_in(self, step: int) -> int:
        return self.plan.rank_rows(step, self.options.rank, self.options.num_ranks)


Preparation = Callable[
    [EpochWork, Any, ThreadPoolExecutor, Callable[[], bool]], tuple[EpochWork, Backend] | None
]


def produce(work: EpochWork, channel: Channel) -> None:
    """Put the batches of an epoch into a channel, then the error that ended them, or the end."""
    mark_own_thread()
    try:
        work.set_up_thread()
        backend: Backend = work.new_backend()
        pool = ThreadPoolExecutor(
            work.options.decode_threads,
            "decode",
            initializer=_set_up_decode_thread,
            initargs=(work, channel),
        )
        try:
            if work.first_pass is not None:
                changed = work.first_pass(work, backend, pool, channel.is_closed)
                if changed is not None:
                    work, backend = changed
                    _make_batches(work, channel, backend, pool)
            else:
                _make_batches(work, channel, backend, pool)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            backend.close()
            work.delivery.close()
    except BaseException as error:
        channel.put(Failure(error))
    else:
        channel.put(End())


def _set_up_decode_thread(work: EpochWork, channel: Channel) -> None:
    mark_own_thread()
    stop_retrying_when(channel.is_closed)
    work.set_up_thread()


def _make_batches(
    work: EpochWork, channel: Channel, backend: Backend, pool: ThreadPoolExecutor
) -> None:
    batches: OpenBatches[Any] = OpenBatches(work.rows_in, backend.new_block, backend.num_lists)
    loads = _LoadsAhead(work, batches, backend, pool)
    try:
        for step in range(work.start_step, work.plan.num_steps):
            if not channel.wait_for_room():
                return
            loads.wait_for(step)
            batch = work.delivery.prepare(backend.finish(batches.take(step)))
            channel.put(Ready(batch, loads.are_done))
    finally:
        loads.close()


class _LoadsAhead:
    """Loads in flight: `LoaderOptions.loads_ahead`, the next to be needed first."""

    def __init__(
        self,
        work: EpochWork,
        batches: OpenBatches[Any],
        backend: Backend,
        pool: ThreadPoolExecutor,
    ):
        self._work = work
        self._batches = batches
        self._backend = backend
        self._pool = pool
        self._loads = plan_loads(work.plan, work.chunks, work.lanes, work.start_step)
        self._waiting = self._all_loads()
        # Telling of each row group costs as much as decoding a hundred rows.
        self._expected = backend.expect(self._all_groups()) if work.any_remote else Expected()
        self._num_done = 0
        self._in_flight: deque[tuple[int, Future[None]]] = deque()
        for _ in range(work.options.loads_ahead):
            self._submit_next()

    def wait_for(self, step: int) -> None:
        """Sleep until all rows of a step are in its batch."""
        while self._in_flight and self._in_flight[0][0] <= step:
            _, result = self._in_flight.popleft()
            result.result()
            self._num_done += 1
            self._expected.passed(self._num_done)
            self._submit_next()

    @property
    def are_done(self) -> bool:
        return not self._in_flight

    def close(self) -> None:
        """Drop the loads that have not begun: a circle of references would keep their batches."""
        self._waiting.close()
        self._expected.close()
        self._in_flight.clear()

    def _all_loads(self) -> Generator[tuple[int, ChunkDealer, int, RowGroup], None, None]:
        """Each row group to load: the step that needs it, its dealer, its number in the chunk."""
        work = self._work
        seed = None if work.options.shuffle == "none" else work.options.seed
        for load in self._loads:
            chunk = work.chunks[load.chunk]
            sizes = [chunk.num_rows]
            if len(chunk.row_groups) > 1:
                sizes = [work.row_groups[group].num_rows for group in chunk.row_groups]
            order = work.order_of and partial(work.order_of, load.chunk)
            dealer = ChunkDealer(work.plan, work.lanes, chunk, load, sizes, seed, work.epoch, order)
            for number, group in enumerate(chunk.row_groups):
                yield load.step, dealer, number, work.row_groups[group]

    def _all_groups(self) -> Iterator[RowGroup]:
        work, loads = self._work, self._loads
        numbers = (number for load in loads for number in work.chunks[load.chunk].row_groups)
        return (work.row_groups[number] for number in numbers)

    def _submit_next(self) -> None:
        following = next(self._waiting, None)
        if following is not None:
            step, dealer, number, group = following
            self._in_flight.append((step, self._pool.submit(self._run, dealer, number, group)))

    def _run(self, dealer: ChunkDealer, number: int, group: RowGroup) -> None:
        deal = dealer.deal(number)
        if len(deal.rows):
            batches = [self._batches.at(step) for step in deal.steps.tolist()]
            self._backend.load(group, deal, batches)


class EpochIterator:
    """Iterates over a rank's batches of an epoch, which background threads prepare.

    Use it in a `with` statement: leaving it, at the end, early or by an exception, ends the threads
    and closes the files. So does its garbage collection.

    Attributes:
        wait_s: Seconds the consumer has waited for batches so far.
        all_loaded: Whether the batches that are left have all their rows.
    """

    def __init__(self, work: EpochWork, prefetch_batches: int, stats: StatsRecorder):
        self.wait_s = 0.0
        self.all_loaded = False
        self._error: BaseException | None = None
        self._channel = Channel(prefetch_batches)
        self._hand_over = work.delivery.hand_over
        self._stats = stats
        self._stats.add(epochs=1)
        self._start_s: float | None = time.perf_counter()
        self._rows_ahead = iter(
            work.rows_in(step) for step in range(work.start_step, work.plan.num_steps)
        )
        # The thread knows the channel but not this object, which can so be collected. It is a
        # daemon only to let the interpreter exit: the finalizer ends and joins it there, too.
        thread = threading.Thread(
            target=produce, args=(work, self._channel), name="loader", daemon=True
        )
        thread.start()
        self._stop = weakref.finalize(self, _stop, self._channel, thread)

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        """The next batch, or what the loader's transforms made of it.

        Raises:
            StopIteration: The epoch is over, or the iterator was closed.
            Unavailable: The storage did not answer for `retry_s`.
            DataError: A file cannot be read or holds an unusable value; raised after the batches
                that come before it, and again on every further call.
        """
        if self._error is not None:
            raise self._error
        if not self._stop.alive:
            raise StopIteration
        depth = self._channel.depth
        start_s = time.perf_counter()
        item = self._channel.get()
        now_s = time.perf_counter()
        self.wait_s += now_s - start_s
        if isinstance(item, Failure | End):
            self._stats.add(wait_s=now_s - start_s)
            self.close()
            if isinstance(item, End):
                raise StopIteration
            self._error = item.error
            raise item.error
        self._count(depth, now_s - start_s, now_s)
        self.all_loaded = item.all_loaded
        return self._hand_over(item.batch)

    def _count(self, depth: int, wait_s: float, now_s: float) -> None:
        first_s = 0.0 if self._start_s is None else now_s - self._start_s
        self._start_s = None
        self._stats.add(
            batches=1,
            rows=next(self._rows_ahead),
            wait_s=wait_s,
            first_batch_s=first_s,
            queue_depth_sum=depth,
        )

    def __enter__(self) -> EpochIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the files; may be called again."""
        self._stop()


def _stop(channel: Channel, thread: threading.Thread) -> None:
    channel.close()
    # A collection inside a loader's thread may end up here; it would wait for itself.
    if not in_own_thread():
        thread.join()
