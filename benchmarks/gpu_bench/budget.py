"""Divides the minutes among the stages: earlier ones first, leaving later ones their minimum."""

from collections.abc import Sequence
from dataclasses import dataclass

REFERENCE_MINUTES = 10.0


@dataclass(frozen=True)
class Need:
    """The time that a stage needs.

    Attributes:
        least_s: The stage is skipped if less than this is left.
        most_s: The stage is stopped after this time, even if more is left.
    """

    least_s: float
    most_s: float

    def scaled(self, minutes: float) -> "Need":
        """Return the need in a longer run: `most_s` grows with the minutes, `least_s` stays."""
        return Need(self.least_s, self.most_s * max(1.0, minutes / REFERENCE_MINUTES))


def limit_s(left_s: float, need: Need, later: Sequence[Need]) -> float | None:
    """Return the time limit of a stage.

    It reserves `least_s` for as many of the later stages, in their order, as can begin at all. Time
    that a stage does not use is available to the next.

    Args:
        left_s: Seconds left of the whole run.
        need: The need of the stage.
        later: The needs of the stages after it, in their order.

    Returns:
        Seconds between its least and its most; `None` if less than its least is left.

    >>> limit_s(100.0, Need(10, 80), [Need(30, 60)])
    70.0
    >>> limit_s(35.0, Need(10, 80), [Need(30, 60)])
    35.0
    >>> limit_s(9.0, Need(10, 80), []) is None
    True
    """
    if left_s < need.least_s:
        return None
    kept_s = 0.0
    for other in later:
        if kept_s + other.least_s > left_s - need.least_s:
            break
        kept_s += other.least_s
    return min(need.most_s, left_s - kept_s)
