"""A graph that is played on the CPU, in the place of CUDA's.

It does what CUDA's does as far as data flow goes: recording does nothing, replaying reads the
recorded tensors as they are then. Streams, memory pools and capture itself are CUDA's.
"""

from collections.abc import Callable

from host_work import PlayedDevice
from torch import Tensor


class PlayedGraph:
    """Records a call and makes it when replayed."""

    made = released = replays_in_all = 0

    def __init__(self) -> None:
        """Count it."""
        PlayedGraph.made += 1
        self.replays = 0

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Keep a call."""
        self.run = run

    def replay(self) -> tuple[Tensor, ...]:
        """Make the call."""
        self.replays += 1
        PlayedGraph.replays_in_all += 1
        return self.run()

    def release(self) -> None:
        """Count it."""
        PlayedGraph.released += 1


class OneLaunch(PlayedGraph):
    """A played graph whose replay is one launch of a played device."""

    device: PlayedDevice

    def replay(self) -> tuple[Tensor, ...]:
        """Make the call."""
        before = self.device.launches
        result = super().replay()
        self.device.launches = before + 1
        return result


def graphs_of(device: PlayedDevice) -> type[OneLaunch]:
    """Return a class of graphs of a played device."""
    return type("OfDevice", (OneLaunch,), {"device": device})
