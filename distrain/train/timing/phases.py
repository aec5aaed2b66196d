"""A rank's wall time by phase."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from distrain.events import PHASES
from distrain.train.timing.device_clock import DeviceClock


class PhaseClock:
    """Accounts for wall time by phase; what no phase claims is `other`, so the parts sum up.

    Times are the host's: on a GPU, where work is only queued, a phase is the time the host spent in
    it. No phase waits for the device; the device's own clock measures what it did meanwhile.

    Args:
        device: Accounts for the device's time by the same phases; `None` if that is the host.

    >>> clock = PhaseClock()
    >>> with clock.phase("data_wait"):
    ...     pass
    >>> window = clock.lap()
    >>> abs(sum(window.values()) - clock.elapsed_s) < 1e-6
    True
    """

    def __init__(self, device: DeviceClock | None = None) -> None:
        self._device = device
        self._start = self._lap_start = time.perf_counter()
        self._lap_end = self._start
        self._window = dict.fromkeys(PHASES, 0.0)
        self.totals = dict.fromkeys(PHASES, 0.0)
        self.doing = "other"

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the end of the last lap."""
        return self._lap_end - self._start

    @property
    def running_s(self) -> float:
        return time.perf_counter() - self._start

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`; phases do not nest."""
        self.doing = name
        began = time.perf_counter()
        mark = self._device.begin() if self._device else None
        try:
            yield
            if self._device:
                self._device.end(name, mark)
        finally:
            self._window[name] += time.perf_counter() - began
            self.doing = "other"

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap, summing to its wall time; begins a new lap."""
        self._lap_end = time.perf_counter()
        window = self._window
        window["other"] += max(0.0, self._lap_end - self._lap_start - sum(window.values()))
        for name, seconds in window.items():
            self.totals[name] += seconds
        self._lap_start = self._lap_end
        self._window = dict.fromkeys(PHASES, 0.0)
        return window

    def device_lap(self, *, wait: bool = False) -> dict[str, float]:
        """The device's seconds by phase since the last one; empty on the CPU."""
        return self._device.lap(wait=wait) if self._device else {}

    @property
    def device_totals(self) -> dict[str, float]:
        return dict(self._device.totals) if self._device else {}
