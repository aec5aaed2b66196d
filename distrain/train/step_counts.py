"""How long a rank's steps took, as counts. A mean over a report's steps hides the slow ones."""

from bisect import bisect_left

from distrain.events import STEP_BOUNDS_S


class StepCounts:
    """Counts steps by their wall time until somebody takes the counts.

    >>> counts = StepCounts()
    >>> counts.add(0.004)
    >>> counts.add(60.0)
    >>> taken = counts.take()
    >>> taken[STEP_BOUNDS_S.index(0.005)], taken[-1], sum(taken), sum(counts.take())
    (1, 1, 2, 0)
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(STEP_BOUNDS_S) + 1)

    def add(self, step_s: float) -> None:
        """Count a step that took `step_s` seconds."""
        self._counts[bisect_left(STEP_BOUNDS_S, step_s)] += 1

    def take(self) -> list[int]:
        """The counts since the last time: up to each of `STEP_BOUNDS_S`, and longer."""
        taken, self._counts = self._counts, [0] * len(self._counts)
        return taken
