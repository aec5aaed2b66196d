"""A histogram of how long steps take. Pure."""

from bisect import bisect_left
from collections.abc import Sequence

from distrain.events import STEP_BOUNDS_S


class StepTimes:
    """Counts of steps by their wall time, and the sum of their times.

    >>> times = StepTimes()
    >>> times.add_mean(0.004, 10)
    >>> times.add_mean(60.0, 1)
    >>> times.cumulative()[2], times.cumulative()[-1], round(times.sum_s, 2)
    ((0.005, 10), (inf, 11), 60.04)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(STEP_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, counts: Sequence[int], sum_s: float) -> None:
        """Count steps as a rank counted them.

        Args:
            counts: Up to each of `STEP_BOUNDS_S`, and longer.
            sum_s: How long they took together.
        """
        self.counts = [mine + its for mine, its in zip(self.counts, counts, strict=True)]
        self.sum_s += sum_s

    def add_mean(self, step_s: float, steps: int) -> None:
        """Count some steps as if each took `step_s`, of a rank that does not count them."""
        self.counts[bisect_left(STEP_BOUNDS_S, step_s)] += steps
        self.sum_s += step_s * steps

    def cumulative(self) -> list[tuple[float, int]]:
        """Per bucket, its upper bound in seconds and the steps that took no longer."""
        total, pairs = 0, []
        for bound_s, count in zip((*STEP_BOUNDS_S, float("inf")), self.counts, strict=True):
            total += count
            pairs.append((bound_s, total))
        return pairs
