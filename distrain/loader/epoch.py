"""One rank's batches of one epoch."""

from __future__ import annotations

import threading
import time
import weakref
from types import TracebackType

from distrain.batch import Batch
from distrain.loader.channel import Channel, End, Failure
from distrain.loader.producer import EpochWork, in_own_thread, produce


class EpochIterator:
    """Iterates over a rank's batches of an epoch, which background threads prepare.

    Use it in a `with` statement: leaving it, whether at the end, early or by an exception, ends the
    threads and closes the files. So does dropping it, whenever it is collected.

    Attributes:
        wait_s: Seconds the consumer has waited for batches so far.
    """

    def __init__(self, work: EpochWork, prefetch_batches: int):
        self.wait_s = 0.0
        self._error: BaseException | None = None
        self._channel = Channel(prefetch_batches)
        # The thread knows the channel but not this object, which can so be collected. It is a
        # daemon only to let the interpreter exit: the finalizer ends and joins it there, too.
        thread = threading.Thread(
            target=produce, args=(work, self._channel), name="loader", daemon=True
        )
        thread.start()
        self._stop = weakref.finalize(self, _stop, self._channel, thread)

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            StopIteration: The epoch is over, or the iterator was closed.
            DataError: A file cannot be read or holds an unusable value; raised after the batches
                that come before it, and again on every further call.
        """
        if self._error is not None:
            raise self._error
        if not self._stop.alive:
            raise StopIteration
        start_s = time.perf_counter()
        item = self._channel.get()
        self.wait_s += time.perf_counter() - start_s
        if isinstance(item, Batch):
            return item
        self.close()
        if isinstance(item, Failure):
            self._error = item.error
            raise item.error
        assert isinstance(item, End)
        raise StopIteration

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
