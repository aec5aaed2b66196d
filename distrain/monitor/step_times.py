"""A histogram of how long steps take. Pure."""

from bisect import bisect_left

BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the buckets; one more takes what is longer."""


class StepTimes:
    """Counts of steps by their wall time, and the sum of their times.

    >>> times = StepTimes()
    >>> times.add(0.004, 10)
    >>> times.add(60.0, 1)
    >>> times.cumulative()[2], times.cumulative()[-1], round(times.sum_s, 2)
    ((0.005, 10), (inf, 11), 60.04)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, step_s: float, steps: int) -> None:
        """Count some steps that took `step_s` seconds each."""
        self.counts[bisect_left(BOUNDS_S, step_s)] += steps
        self.sum_s += step_s * steps

    def cumulative(self) -> list[tuple[float, int]]:
        """Per bucket, its upper bound in seconds and the steps that took no longer."""
        total, pairs = 0, []
        for bound_s, count in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            total += count
            pairs.append((bound_s, total))
        return pairs
