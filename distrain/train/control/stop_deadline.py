"""The deadline of a stop: a rank leaves in order if it can, and in time if it cannot."""

import logging
import math
import threading
import time
from collections.abc import Callable

from distrain.jobs.events import Event, RankStopped
from distrain.train.timing.phases import RankActivity

SHARE_FOR_AGREEMENT = 0.5
"""The share of the grace after which a rank no longer waits for the others to agree."""

LAST_MOMENT_S = 1.0
"""How long before the end of the grace a rank leaves as it is (a tenth of it, if that is less)."""

MAIN_THREAD_S = 0.5
"""How long the training thread may take to leave by itself when a stop was abandoned."""

log = logging.getLogger("distrain.stop")


class StopDeadline:
    """Ends the rank's process when a stop's time is up, whatever the training thread does.

    That may hang in a collective operation with a rank that is gone. `leave` does not return.
    """

    def __init__(
        self,
        rank: int,
        activity: RankActivity,
        report: Callable[[Event], None],
        leave: Callable[[], None],
    ):
        self._rank = rank
        self._activity = activity
        self._report = report
        self._leave = leave
        self._changed = threading.Condition()
        self._deadline_s = math.inf
        self._early_s = math.inf
        self._arrived = False
        self._over = False
        self._thread: threading.Thread | None = None

    def leave_within(self, grace_s: float) -> None:
        with self._changed:
            self._deadline_s = min(self._deadline_s, time.monotonic() + grace_s)
            self._watch()

    def stop_agreed(self, target: int | None) -> None:
        """Record the agreed place of the stop; `None` if the ranks could not agree.

        Before the first place there is nothing to save, and getting there may take long: unless the
        training thread arrives in a moment, the rank leaves without it.
        """
        with self._changed:
            if not self._arrived and not target:
                self._early_s = time.monotonic() + MAIN_THREAD_S
                self._watch()

    def arrived(self) -> None:
        """The training thread is where the ranks stop and save: it has the rest of the grace."""
        with self._changed:
            self._arrived = True
            self._early_s = math.inf
            self._changed.notify_all()

    def _watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="stop-deadline", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def finished(self) -> None:
        """The training did all its work, so the remaining work is not given up."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def stopped(self, step: int, saved: bool) -> bool:
        """Report the stop; false if it was reported before."""
        with self._changed:
            if self._over:
                return False
            self._over = True
            self._changed.notify_all()
        self._report(RankStopped(self._rank, step, saved))
        return True

    def _wait(self) -> None:
        with self._changed:
            while not self._over:
                left_s = min(self._deadline_s, self._early_s) - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
        if self.stopped(self._activity.step, False):
            log.warning("the rank leaves without a checkpoint: its time is up")
            self._leave()


def time_to_leave_s(grace_s: float) -> float:
    """Return when to leave as it is: a moment before the process would be killed.

    >>> time_to_leave_s(20.0), time_to_leave_s(2.0)
    (19.0, 1.8)
    """
    return grace_s - min(LAST_MOMENT_S, 0.1 * grace_s)
