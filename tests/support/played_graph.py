"""A graph that is played on the CPU, in the place of CUDA's.

It does what CUDA's does as far as data flow goes: recording does nothing, replaying reads the
recorded tensors as they are then. Streams, memory pools and capture itself are CUDA's.
"""

from collections.abc import Callable

from torch import Tensor


class PlayedGraph:
    """Records a call and makes it when replayed."""

    made = replays_in_all = 0

    def __init__(self) -> None:
        """Count it."""
        PlayedGraph.made += 1
        self.replays = 0
        self.is_released = False

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Keep a call."""
        self.run = run

    def replay(self) -> tuple[Tensor, ...]:
        """Make the call."""
        self.replays += 1
        PlayedGraph.replays_in_all += 1
        return self.run()

    def release(self) -> None:
        """Note it."""
        self.is_released = True
