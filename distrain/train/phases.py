"""Where a rank's wall time goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from distrain.events import PHASES


class PhaseClock:
    """Accounts for wall time by phase; what no phase claims is `other`, so the parts sum up.

    Times are the host's: on a GPU, where work is only queued, a phase is the time the host spent
    in it. No phase waits for the device on its own account.

    >>> clock = PhaseClock()
    >>> with clock.phase("data_wait"):
    ...     pass
    >>> window = clock.lap()
    >>> abs(sum(window.values()) - clock.elapsed_s) < 1e-6
    True
    """

    def __init__(self) -> None:
        self._start = self._lap_start = time.perf_counter()
        self._lap_end = self._start
        self._window = dict.fromkeys(PHASES, 0.0)
        self.totals = dict.fromkeys(PHASES, 0.0)

    @property
    def elapsed_s(self) -> float:
        """Wall time from the start to the end of the last lap."""
        return self._lap_end - self._start

    @property
    def running_s(self) -> float:
        """Wall time from the start until now."""
        return time.perf_counter() - self._start

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`; phases do not nest."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._window[name] += time.perf_counter() - began

    def lap(self) -> dict[str, float]:
        """Close the window: seconds by phase since the last lap, summing to its wall time."""
        self._lap_end = time.perf_counter()
        window = self._window
        window["other"] += max(0.0, self._lap_end - self._lap_start - sum(window.values()))
        for name, seconds in window.items():
            self.totals[name] += seconds
        self._lap_start = self._lap_end
        self._window = dict.fromkeys(PHASES, 0.0)
        return window
