"""Counts and times of a loader's work."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields, replace
from queue import SimpleQueue

_MOST_UNSUMMED = 256


@dataclass
class LoaderStats:
    """Counts and times of a rank's loader; times of threads add up, so they may exceed wall time.

    Attributes:
        batches: Batches handed out.
        rows: Rows in these batches.
        row_groups: Row groups read, or slices of large ones. A row group with rows for several
            ranks is read by each of them.
        bytes_read: Bytes of the columns read: compressed bytes of parquet files, or bytes of cache
            entries.
        decode_s: Seconds of reading and decoding, over all threads.
        fill_s: Seconds of shuffling, checking and laying out, over all threads.
        wait_s: Seconds that the consumer waited for batches, including the first ones.
        first_batch_s: Seconds from the start of an iterator to its first batch, over all iterators.
        epochs: Epochs begun; for a dataset with windows, windows begun.
        queue_depth_sum: The finished batches that waited when a batch was requested, summed over
            batches.
    """

    batches: int = 0
    rows: int = 0
    row_groups: int = 0
    bytes_read: int = 0
    decode_s: float = 0.0
    fill_s: float = 0.0
    wait_s: float = 0.0
    first_batch_s: float = 0.0
    epochs: int = 0
    queue_depth_sum: int = 0

    @property
    def mean_queue_depth(self) -> float:
        """The mean number of finished batches that wait when the consumer requests a batch.

        If it is close to `prefetch_batches`, the loader is faster than the consumer; if it is close
        to 0, the consumer waits for the loader.
        """
        return self.queue_depth_sum / max(1, self.batches)

    def to_json(self) -> dict[str, float]:
        return asdict(self) | {"mean_queue_depth": self.mean_queue_depth}


class StatsRecorder:
    """Adds to statistics from any thread, without waiting for another thread.

    If the loader's threads waited for a lock here, a garbage collection in a thread that holds it
    could drop an iterator and wait for these threads: a deadlock.
    """

    def __init__(self) -> None:
        self._added: SimpleQueue[dict[str, float]] = SimpleQueue()
        self._stats = LoaderStats()
        self._lock = threading.Lock()

    def add(self, **amounts: float) -> None:
        self._added.put(amounts)
        if self._added.qsize() >= _MOST_UNSUMMED and self._lock.acquire(blocking=False):
            try:
                self._sum_up()
            finally:
                self._lock.release()

    def read(self) -> LoaderStats:
        with self._lock:
            self._sum_up()
            return replace(self._stats)

    def _sum_up(self) -> None:
        for _ in range(self._added.qsize()):
            amounts = self._added.get_nowait()  # not empty: only the lock's holder takes amounts
            for name, amount in amounts.items():
                setattr(self._stats, name, getattr(self._stats, name) + amount)


def difference(later: LoaderStats, earlier: LoaderStats) -> LoaderStats:
    """Return `later - earlier`, field by field.

    >>> difference(LoaderStats(rows=7), LoaderStats(rows=4)).rows
    3
    """
    return LoaderStats(
        **{f.name: getattr(later, f.name) - getattr(earlier, f.name) for f in fields(LoaderStats)}
    )


def total(one: LoaderStats, other: LoaderStats) -> LoaderStats:
    """Return the sum of two statistics, field by field.

    >>> total(LoaderStats(rows=7), LoaderStats(rows=4)).rows
    11
    """
    return LoaderStats(
        **{f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(LoaderStats)}
    )
