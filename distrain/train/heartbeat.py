"""A thread that tells, every second or so, that the rank's process runs and what it is at."""

import threading
from collections.abc import Callable

from distrain.events import Event, Heartbeat

LONGEST_PERIOD_S = 1.0
_BEATS_PER_DEADLINE = 4


def period_s(progress_s: float | None) -> float:
    """Seconds from beat to beat.

    >>> period_s(300.0), period_s(2.0), period_s(None)
    (1.0, 0.5, 1.0)
    """
    if progress_s is None:
        return LONGEST_PERIOD_S
    return min(LONGEST_PERIOD_S, progress_s / _BEATS_PER_DEADLINE)


def start_heart(
    beat: Callable[[], Heartbeat], report: Callable[[Event], None], every_s: float
) -> Callable[[], None]:
    """Report a beat every so often from a thread.

    Returns:
        Ends that.
    """
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(every_s):
            report(beat())

    threading.Thread(target=live, name="heartbeat", daemon=True).start()
    return ended.set
