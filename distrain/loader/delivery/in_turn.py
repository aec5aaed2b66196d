"""Iterators of batches one after another, without a pause between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distrain.loader.delivery.epoch import EpochIterator
from distrain.partition import EpochSteps


class InTurn:
    """The batches of steps over all epochs, window after window.

    The first window begins at once, any other while batches of the one before are left, of which
    these have their memory: at most `ahead_batches`, or with `after_loads` those that have all
    their rows. A window's first batch needs row groups of all lanes, so it takes longer than any
    other; with small batches longer than `ahead_batches` steps do.

    Args:
        begin: Starts to prepare the batches from a step of an epoch on, to the end of its window.
        epoch: The steps of each epoch.
        steps: The steps to take, counted over all epochs; nothing is read for others.
    """

    def __init__(
        self,
        begin: Callable[[int, int], EpochIterator],
        epoch: EpochSteps,
        steps: range,
        ahead_batches: int,
        *,
        after_loads: bool = False,
    ):
        self._begin = begin
        self._epoch = epoch
        self._ahead_batches = ahead_batches
        self._after_loads = after_loads
        self._taken, self._stop = steps.start, steps.stop
        self._wait_s = 0.0  # of the windows that are over
        self._following: EpochIterator | None = None
        self._current = self._begin_at(steps.start) if steps else None
        self._end = self._end_of(steps.start) if steps else steps.stop

    def _begin_at(self, step: int) -> EpochIterator:
        return self._begin(*divmod(step, self._epoch.num_steps))

    def _end_of(self, step: int) -> int:
        """One past the last step of the window that a step lies in."""
        of_epoch = step % self._epoch.num_steps
        return step - of_epoch + self._epoch.span(self._epoch.window_of(of_epoch))[1]

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
        is_time = self._end - self._taken <= self._ahead_batches or (
            self._after_loads and self._current.all_loaded
        )
        if is_time and self._following is None and self._end < self._stop:
            self._following = self._begin_at(self._end)
        return batch

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the open windows; a thread that waits for a batch gets `StopIteration`."""
        for window in (self._current, self._following):
            if window is not None:
                window.close()
