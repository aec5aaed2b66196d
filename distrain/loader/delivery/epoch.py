"""Makes a rank's batches: threads load row groups ahead, and an iterator yields whole batches.

A pool of threads loads row groups in a fixed order, and each thread writes the rows to their final
places in the batches of the coming steps. One thread (`produce`) delivers batches in the order of
steps: a batch is complete when all loads of its step are done (see `loads_ahead.py`). The order in
which threads decode does not affect the batches, so any number of threads gives the same stream.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from distrain.loader.delivery.channel import Channel, End, Failure, Ready
from distrain.loader.delivery.loads_ahead import Backend, EpochWork, LoadsAhead
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.delivery.transfer import Delivery
from distrain.loader.filling.schedule import LookAhead
from distrain.loader.options import LoaderOptions
from distrain.loader.own_threads import in_own_thread, mark_own_thread
from distrain.storage.retrying import stop_retrying_when


@dataclass(frozen=True)
class Production:
    """The arguments of `produce`, which runs in a thread of its own, the producer."""

    works: Iterator[EpochWork]  # in order; advanced in the producer's thread
    options: LoaderOptions
    delivery: Delivery
    set_up_thread: Callable[[], None]  # called first by each thread
    stats: StatsRecorder


def produce(production: Production, channel: Channel) -> None:
    """Put all batches into a channel, then `End`; after an error, a `Failure` instead.

    At the end, also after an error, waits for the threads that decode, and closes files and
    delivery.
    """
    mark_own_thread()
    options = production.options
    try:
        production.set_up_thread()
        pool = ThreadPoolExecutor(
            options.decode_threads,
            "decode",
            initializer=_set_up_decode_thread,
            initargs=(production, channel),
        )

        def begin(work: EpochWork) -> tuple[EpochWork, Backend] | None:
            production.stats.add(epochs=1)
            backend = work.new_backend()
            if work.first_pass is None:
                return work, backend
            try:
                replacement = work.first_pass(work, backend, pool, channel.is_closed)
            except BaseException:
                backend.close()
                raise
            if replacement is None:
                backend.close()
            return replacement

        loads = LoadsAhead(production.works, begin, pool, LookAhead(options.loads_ahead))
        try:
            _make_batches(loads, production.delivery, channel)
        finally:
            loads.drop()
            pool.shutdown(wait=True, cancel_futures=True)
            loads.close()
            production.delivery.close()
    except BaseException as error:
        channel.put(Failure(error))
    else:
        channel.put(End())


def _set_up_decode_thread(production: Production, channel: Channel) -> None:
    mark_own_thread()
    stop_retrying_when(channel.is_closed)
    production.set_up_thread()


def _make_batches(loads: LoadsAhead, delivery: Delivery, channel: Channel) -> None:
    step = 0
    while (epoch := loads.epoch_at(step)) is not None:
        loads.begin_loads(step)
        if not channel.wait_for_space():
            return
        loads.wait_for(step)
        batch = delivery.prepare(epoch.finished(step))
        channel.put(Ready(batch, epoch.rows_in(step)))
        step += 1


class EpochIterator:
    """Iterates over a rank's batches, which background threads prepare.

    At the end of an epoch or window, the first row groups of the next one are loaded while batches
    of the current one remain, except with a full shuffle through buckets.

    Use the iterator in a `with` statement: its end, also early or by an exception, ends the threads
    and closes the files. So does the garbage collection of the iterator.

    Attributes:
        wait_s: Seconds that the consumer has waited for batches so far.
    """

    def __init__(self, production: Production):
        self.wait_s = 0.0
        self._error: BaseException | None = None
        self._channel = Channel(production.options.prefetch_batches)
        self._hand_over = production.delivery.hand_over
        self._stats = production.stats
        self._start_s: float | None = time.perf_counter()
        # The thread has a reference to the channel but not to this iterator, which can therefore be
        # collected. The thread is a daemon only so that the interpreter can exit: the finalizer
        # then runs, too, and joins the thread.
        thread = threading.Thread(
            target=produce, args=(production, self._channel), name="loader", daemon=True
        )
        thread.start()
        self._stop = weakref.finalize(self, _stop, self._channel, thread)

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch, or the output of the loader's transforms.

        Raises:
            StopIteration: All requested batches were returned, or the iterator was closed.
            Unavailable: The storage did not answer for `retry_s`.
            DataError: A file cannot be read or holds an unusable value.
            OutputError: The file of a full shuffle cannot be written or read.
            SpecError: More than 2^31 rows would be shuffled together.

        Errors of transforms are raised unchanged. An error is raised after all batches of earlier
        steps, and again on every further call.
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
        self._count(item.rows, depth, now_s - start_s, now_s)
        return self._hand_over(item.batch)

    def _count(self, rows: int, depth: int, wait_s: float, now_s: float) -> None:
        first_s = 0.0 if self._start_s is None else now_s - self._start_s
        self._start_s = None
        self._stats.add(
            batches=1,
            rows=rows,
            wait_s=wait_s,
            first_batch_s=first_s,
            queue_depth_sum=depth,
        )

    def __enter__(self) -> EpochIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, wait for them, and close the files; may be called several times.

        Row groups that are being decoded are decoded to their end first.
        """
        self._stop()


def _stop(channel: Channel, thread: threading.Thread) -> None:
    channel.close()
    # A garbage collection in a loader's thread may call this function: the thread would wait for
    # itself.
    if not in_own_thread():
        thread.join()
