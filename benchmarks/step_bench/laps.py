"""Measures the time of a step by phase."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Laps:
    """Seconds by phase, summed over steps: by the host's clock on a CPU, by events on a GPU.

    Args:
        cuda: Whether the steps run on a GPU, where the host only queues them.
    """

    def __init__(self, cuda: bool = False):
        self.cuda = cuda
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, Any, Any]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time within the block as `name`; phases do not nest."""
        began = self._now()
        yield
        self._add(name, began, self._now())

    def take(self) -> dict[str, float]:
        """Return the sums since the last call; waits for the GPU."""
        if self._events:
            self._events[-1][2].synchronize()
        for name, began, ended in self._events:
            self._seconds[name] += began.elapsed_time(ended) / 1e3
        taken = dict(self._seconds)
        self._seconds.clear()
        self._events.clear()
        return taken

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _add(self, name: str, began: Any, ended: Any) -> None:
        if self.cuda:
            self._events.append((name, began, ended))
        else:
            self._seconds[name] += ended - began
