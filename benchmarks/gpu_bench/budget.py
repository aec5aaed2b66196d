"""How the minutes are dealt: whatever comes first goes first, and leaves the rest its least."""

from collections.abc import Sequence
from dataclasses import dataclass

REFERENCE_MINUTES = 10.0


@dataclass(frozen=True)
class Need:
    """What a stage takes.

    Attributes:
        least_s: It is not begun with less.
        most_s: It is stopped after so long, however much is left.
    """

    least_s: float
    most_s: float

    def scaled(self, minutes: float) -> "Need":
        """The same in a longer run: its most grows with the minutes, its least stays."""
        return Need(self.least_s, self.most_s * max(1.0, minutes / REFERENCE_MINUTES))


def limit_s(left_s: float, need: Need, later: Sequence[Need]) -> float | None:
    """How long a stage may take.

    Stages that follow keep their least, as many of them, in their order, as can be begun at all.
    What a stage does not use is there for the next.

    Args:
        left_s: Seconds left of the whole run.
        need: The stage's.
        later: Of the stages after it, in their order.

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
