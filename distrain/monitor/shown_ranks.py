"""Which ranks of a large job are shown: documents of thousands would cost more than all else."""

from collections.abc import Mapping

SHOWN_RANKS = 64
"""More bars than this do not fit beside each other; of larger jobs, three curves are kept."""


def shown_ranks(times_s: Mapping[int, float | None], limit: int = SHOWN_RANKS) -> list[int]:
    """At most `limit` ranks, in rising order: of more, the slowest, median and fastest ones.

    Args:
        times_s: Per rank, how long its own work takes per step; `None` if it has not told.
        limit: How many.

    >>> shown_ranks({rank: float(rank) for rank in range(9)}, limit=3)
    [0, 4, 8]
    """
    if len(times_s) <= limit:
        return sorted(times_s)
    by_speed = sorted(times_s, key=lambda rank: (times_s[rank] or 0.0, rank))
    fastest, middle = limit // 3, limit // 3
    slowest = limit - fastest - middle
    begin = (len(by_speed) - middle) // 2
    return sorted(
        by_speed[:fastest] + by_speed[begin : begin + middle] + by_speed[len(by_speed) - slowest :]
    )
