"""A job's batches, one epoch after another without a pause."""

from typing import Any

from distrain.loader import Loader


class EpochPrefetch:
    """A job's batches; threads already read the next epoch while the last batches train.

    An epoch's first batch needs row groups of all lanes, so it takes longer than any other. The
    first epoch begins at once, beside the caller's own set-up. Any other begins when at most
    `ahead_batches` of the one before are left: these have their memory, so at most that many
    batches are held beyond `Loader.memory`.

    Args:
        num_steps: The batches of all epochs: no epoch begins without need.
        first_step: Steps before it are left out, and nothing is read for them.
    """

    def __init__(self, loader: Loader, num_steps: int, ahead_batches: int, first_step: int = 0):
        self._loader = loader
        self._num_steps = num_steps
        self._ahead_batches = ahead_batches
        self._first = self._taken = first_step
        epoch, step = divmod(first_step, loader.num_steps)
        if first_step == num_steps:  # nothing is left: the last epoch, from its end on
            epoch, step = (first_step - 1) // loader.num_steps, loader.num_steps
        self._current = self._following = loader.epoch(epoch, start_step=step)

    def __iter__(self) -> "EpochPrefetch":
        return self

    def __next__(self) -> Any:
        if self._taken == self._num_steps:
            raise StopIteration
        per_epoch = self._loader.num_steps
        if self._taken > self._first and self._taken % per_epoch == 0:
            self._current.close()
            self._current = self._following
        batch = next(self._current)
        self._taken += 1
        epoch = (self._taken - 1) // per_epoch
        end = (epoch + 1) * per_epoch
        begun = self._following is not self._current
        if not begun and end < self._num_steps and end - self._taken <= self._ahead_batches:
            self._following = self._loader.epoch(epoch + 1)
        return batch

    def close(self) -> None:
        """End the open epochs; a thread that waits for a batch gets `StopIteration`."""
        for epoch in (self._current, self._following):
            epoch.close()
