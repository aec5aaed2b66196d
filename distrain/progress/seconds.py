"""Reports by seconds: a rank's windows of steps, joined before they go to the scheduler.

Counts of joined windows are exact sums, so nothing is lost but the records in between. Each rank
decides alone when it joins, by the time that its windows take, and the scheduler needs windows of
all ranks that end at the same step. So of the rank's reports, numbered from 1, a joined one ends at
a multiple of a power of two: of two ranks that join unlike numbers of windows, the ends of the
coarser ones are ends of the finer ones, and there the ranks' reports are merged.

Whatever else a rank reports, but for its signs of life, comes after all windows before it, one by
one: its last steps, those before a validation, and those before a failure are never held back.
"""

import math
from collections.abc import Mapping
from typing import Any

from distrain.events import (
    CheckpointSaved,
    Heartbeat,
    KeepingTrouble,
    StacksTaken,
    StepsDone,
    from_json,
    to_json,
)
from distrain.progress.merging import join_windows

_PASSING = frozenset(
    kind.kind for kind in (Heartbeat, StacksTaken, KeepingTrouble, CheckpointSaved)
)
_MOST_HELD = 256


class WindowJoiner:
    """One rank's reports on their way to the scheduler, one in `every_s` seconds; 0: all."""

    def __init__(self, every_s: float):
        self._every_s = every_s
        self._held: list[Mapping[str, Any]] = []
        self._number = 0
        self._sent_s = 0.0

    def take(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The events to send after this one has come, as JSON values."""
        kind = event.get("kind")
        if kind in _PASSING or self._every_s <= 0:
            return [event]
        if kind != StepsDone.kind:
            return [*self._let_go(), event]
        self._held.append(event)
        self._number += 1
        mean_s = (float(event["elapsed_s"]) - self._sent_s) / len(self._held)
        if self._number % _stride(self._every_s, mean_s):
            return []
        joined = _joined(self._held)
        self._let_go()
        return [joined]

    def _let_go(self) -> list[Mapping[str, Any]]:
        held, self._held = self._held, []
        if held:
            self._sent_s = float(held[-1]["elapsed_s"])
        return held


def _stride(every_s: float, window_s: float) -> int:
    """The least power of two of windows that take so long.

    >>> [_stride(1.0, window_s) for window_s in (2.0, 0.6, 0.3, 0.0)]
    [1, 2, 4, 256]
    """
    if window_s <= every_s / _MOST_HELD:
        return _MOST_HELD
    return max(1, int(2 ** math.ceil(math.log2(every_s / window_s))))


def _joined(held: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    events = [from_json(dict(event)) for event in held]
    windows = [event for event in events if isinstance(event, StepsDone)]
    return held[0] if len(held) == 1 else to_json(join_windows(windows))
