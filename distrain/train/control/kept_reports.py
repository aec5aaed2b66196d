"""A checkpoint is completed when the supervisors have kept the reports of the steps before it.

Else a worker that stands still, and dies, takes reports along of steps that are never taken again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from distrain.events import KEEP_S, Event, ReportsAwaited


class KeptReports:
    """The reports of a rank that its supervisor has kept."""

    def __init__(self, rank: int, report: Callable[[Event], None]):
        self._rank, self._report = rank, report
        self._changed = threading.Condition()
        self._awaited = self._kept = 0

    def wait(self, within_s: float = KEEP_S) -> None:
        """Wait until all earlier reports are kept; `OSError` after `within_s` seconds."""
        with self._changed:
            self._awaited = number = self._awaited + 1
        self._report(ReportsAwaited(self._rank, number))
        with self._changed:
            if not self._changed.wait_for(lambda: self._kept >= number, within_s):
                raise OSError(
                    f"its worker has not kept the reports of the steps before within {within_s:g} s"
                )

    def told(self, number: int) -> None:
        with self._changed:
            self._kept = max(self._kept, number)
            self._changed.notify_all()
