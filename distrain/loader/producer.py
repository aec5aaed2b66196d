"""The background work of an epoch: load row groups ahead, hand out batches when they are whole.

A pool of threads loads row groups in an order fixed beforehand, and each puts its rows to their
final places in the batches of the coming steps. One thread (`produce`) hands these out in the order
of the steps: a batch is whole when all loads that its step needs are done. Who decodes when does
not matter to what is in the batches, so the stream is the same for any number of threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from distrain.batch import Batch
from distrain.loader.channel import Channel, End, Failure, Ready
from distrain.loader.dealing import ChunkDealer, Deal
from distrain.loader.delivery import Delivery
from distrain.loader.open_batches import OpenBatch, OpenBatches
from distrain.loader.schedule import plan_loads
from distrain.partition import Chunks, EpochPlan, RowGroup
from distrain.storage import stop_when

_this_thread = threading.local()


class Backend(Protocol):
    """Where row groups become batches: on the host, or on a device.

    Attributes:
        num_lists: How many list columns batches have.
    """

    @property
    def num_lists(self) -> int: ...  # noqa: D102

    def new_block(self, num_rows: int) -> Any:
        """Memory for a batch's flat columns."""
        ...

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Any]]) -> None:
        """Put a row group's rows into the batches of the deal's runs; from any thread."""
        ...

    def finish(self, batch: OpenBatch[Any]) -> Batch:
        """The batch whose rows are all there."""
        ...

    def close(self) -> None:
        """Let go of files and memory; no thread is loading any more."""
        ...


@dataclass(frozen=True)
class EpochWork:
    """All that a rank's stream of one epoch depends on.

    Attributes:
        plan: Deals the epoch's rows to lanes and steps.
        chunks: The epoch's order.
        row_groups: What the chunks' numbers mean.
        rank: Which rank.
        num_ranks: Of how many.
        seed: Of the permutation of each chunk's rows; `None` leaves them as they are.
        epoch: Which epoch.
        start_step: The first step to make.
        decode_threads: How many row groups are loaded at a time.
        new_backend: Makes what loads them; called in the producer's thread.
        delivery: How finished batches get to the consumer.
        set_up_thread: What each thread calls first.
    """

    plan: EpochPlan
    chunks: Chunks
    row_groups: Sequence[RowGroup]
    rank: int
    num_ranks: int
    seed: int | None
    epoch: int
    start_step: int
    decode_threads: int
    new_backend: Callable[[], Backend]
    delivery: Delivery
    set_up_thread: Callable[[], None] = lambda: None

    @property
    def lanes(self) -> range:
        """The rank's lanes."""
        return self.plan.lanes_of_rank(self.rank, self.num_ranks)


def produce(work: EpochWork, channel: Channel) -> None:
    """Put the batches of an epoch into a channel, then the error that ended them, or the end."""
    mark_own_thread()
    try:
        work.set_up_thread()
        backend = work.new_backend()
        pool = ThreadPoolExecutor(
            work.decode_threads,
            "decode",
            initializer=_set_up_decode_thread,
            initargs=(work, channel),
        )
        try:
            _make_batches(work, channel, backend, pool)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            backend.close()
            work.delivery.close()
    except BaseException as error:
        channel.put(Failure(error))
    else:
        channel.put(End())


def mark_own_thread() -> None:
    """Note that the calling thread is one of the loader's."""
    _this_thread.is_own = True


def _set_up_decode_thread(work: EpochWork, channel: Channel) -> None:
    mark_own_thread()
    stop_when(channel.is_closed)
    work.set_up_thread()


def in_own_thread() -> bool:
    """Whether the calling thread is one of a loader's, which must not wait for loader threads."""
    return getattr(_this_thread, "is_own", False)


def _make_batches(
    work: EpochWork, channel: Channel, backend: Backend, pool: ThreadPoolExecutor
) -> None:
    plan = work.plan
    batches: OpenBatches[Any] = OpenBatches(
        lambda step: plan.rank_rows(step, work.rank, work.num_ranks),
        backend.new_block,
        backend.num_lists,
    )
    loads = _LoadsAhead(work, batches, backend, pool)
    try:
        for step in range(work.start_step, plan.num_steps):
            if not channel.wait_for_room():
                return
            loads.wait_for(step)
            channel.put(Ready(work.delivery.prepare(backend.finish(batches.take(step)))))
    finally:
        loads.close()


class _LoadsAhead:
    """Loads in flight: one per decoding thread, the next to be needed first."""

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
        self._waiting = self._all_loads()
        self._in_flight: deque[tuple[int, Future[None]]] = deque()
        for _ in range(work.decode_threads):
            self._submit_next()

    def wait_for(self, step: int) -> None:
        """Sleep until all rows of a step are in its batch."""
        while self._in_flight and self._in_flight[0][0] <= step:
            _, result = self._in_flight.popleft()
            result.result()
            self._submit_next()

    def close(self) -> None:
        """Forget what is still to be loaded.

        The generator of loads refers to this object, which refers to it: unclosed, an epoch that is
        ended early would keep its batches until the next garbage collection.
        """
        self._waiting.close()
        self._in_flight.clear()

    def _all_loads(self) -> Generator[tuple[int, ChunkDealer, int, RowGroup], None, None]:
        """Every row group to load: the step that needs it, who deals its rows, its number there."""
        work = self._work
        for load in plan_loads(work.plan, work.chunks, work.lanes, work.start_step):
            chunk = work.chunks[load.chunk]
            sizes = [work.row_groups[group].num_rows for group in chunk.row_groups]
            dealer = ChunkDealer(work.plan, work.lanes, chunk, load, sizes, work.seed, work.epoch)
            for number, group in enumerate(chunk.row_groups):
                yield load.step, dealer, number, work.row_groups[group]

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
