"""Iterators of batches one after another, without a pause between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distrain.loader.delivery.epoch import EpochIterator


class InTurn:
    """The batches of stretches of steps, one stretch after another.

    A stretch's first batch needs row groups of all lanes, so it takes longer than any other. The
    first stretch begins at once. Any other begins when at most `ahead_batches` of the one before
    are left: these have their memory, so at most that many batches are held beyond
    `Loader.memory`.

    Args:
        begin: Starts to prepare the batches from a step on, to the end of the stretch it lies in.
        end_of: One past the last step of that stretch.
        steps: The steps to take; nothing is read for others.
    """

    def __init__(
        self,
        begin: Callable[[int], EpochIterator],
        end_of: Callable[[int], int],
        steps: range,
        ahead_batches: int,
    ):
        self._begin = begin
        self._end_of = end_of
        self._ahead_batches = ahead_batches
        self._taken, self._stop = steps.start, steps.stop
        self._wait_s = 0.0  # of the stretches that are over
        self._following: EpochIterator | None = None
        self._current = begin(steps.start) if steps else None
        self._end = end_of(steps.start) if steps else steps.stop

    @property
    def wait_s(self) -> float:
        """Seconds the consumer has waited for batches so far."""
        return self._wait_s + (self._current.wait_s if self._current else 0.0)

    def __iter__(self) -> InTurn:
        return self

    def __next__(self) -> Any:
        if self._taken == self._stop:
            raise StopIteration
        assert self._current is not None
        if self._taken == self._end:
            self._wait_s = self.wait_s
            self._current.close()
            self._current, self._following = self._following, None
            self._end = self._end_of(self._taken)
            assert self._current is not None
        batch = next(self._current)
        self._taken += 1
        left = self._end - self._taken
        if self._following is None and self._end < self._stop and left <= self._ahead_batches:
            self._following = self._begin(self._end)
        return batch

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the open stretches; a thread that waits for a batch gets `StopIteration`."""
        for stretch in (self._current, self._following):
            if stretch is not None:
                stretch.close()
