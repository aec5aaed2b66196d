"""One rank's batches of one epoch."""

from __future__ import annotations

import threading
import time
import weakref
from types import TracebackType
from typing import Any

from distrain.loader.channel import Channel, End, Failure
from distrain.loader.producer import EpochWork, in_own_thread, produce
from distrain.loader.stats import StatsRecorder


class EpochIterator:
    """Iterates over a rank's batches of an epoch, which background threads prepare.

    Use it in a `with` statement: leaving it, whether at the end, early or by an exception, ends the
    threads and closes the files. So does dropping it, whenever it is collected.

    Attributes:
        wait_s: Seconds the consumer has waited for batches so far.
    """

    def __init__(self, work: EpochWork, prefetch_batches: int, stats: StatsRecorder):
        self.wait_s = 0.0
        self._error: BaseException | None = None
        self._channel = Channel(prefetch_batches)
        self._hand_over = work.delivery.hand_over
        self._stats = stats
        self._stats.add(epochs=1)
        self._start_s: float | None = time.perf_counter()
        self._rows_ahead = iter(
            work.plan.rank_rows(step, work.rank, work.num_ranks)
            for step in range(work.start_step, work.plan.num_steps)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the files; may be called again."""
        self._stop()


def _stop(channel: Channel, thread: threading.Thread) -> None:
    channel.close()
    # A collection inside a loader's thread may end up here; it would wait for itself.
    if not in_own_thread():
        thread.join()
