"""Ends a rank's process before the deadline of a stop, if its training does not end in time."""

import logging
import math
import threading
import time
from collections.abc import Callable

from distrain.jobs.events import Event, RankStopped
from distrain.train.timing.phases import RankActivity

SHARE_FOR_AGREEMENT = 0.5
"""Share of a stop's grace period after which a rank no longer waits for an agreement."""

LAST_MOMENT_S = 1.0
"""Seconds before the end of the grace period at which a rank exits (at most a tenth of it)."""

MAIN_THREAD_S = 0.5
"""Seconds for the training thread to end if a stop has nothing to save, or was abandoned."""

log = logging.getLogger("distrain.stop")


class StopDeadline:
    """Ends the rank's process at the end of a stop's grace period.

    This works even if the training thread hangs in a collective operation with a dead rank. `leave`
    must end the process, and does not return.
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
        """End the process in `grace_s` seconds, unless the training has finished or stopped before.

        After several calls, the earliest deadline applies.
        """
        with self._changed:
            self._deadline_s = min(self._deadline_s, time.monotonic() + grace_s)
            self._watch()

    def stop_agreed(self, target: int | None) -> None:
        """Exit soon if a stop that was decided has nothing to save.

        `target` is the number of places that ranks pass before the stop (see `StepAgreement`). If
        it is `None` (the ranks could not agree) or 0 (nothing was trained), there is nothing to
        save, and the training thread may not get there for a long time. Then the rank exits after
        `MAIN_THREAD_S`, unless the thread calls `arrived`, `finished` or `stopped` before.
        """
        with self._changed:
            if not self._arrived and not target:
                self._early_s = time.monotonic() + MAIN_THREAD_S
                self._watch()

    def arrived(self) -> None:
        """Record that the training thread has reached the agreed place.

        The thread may then use the rest of the grace period, such as for a checkpoint.
        """
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
        """Record that the training has done all its steps, so the deadline no longer applies."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def stopped(self, step: int, saved: bool) -> bool:
        """Report that the rank has stopped after `step` steps; return True if it was reported.

        `saved` says whether a checkpoint of that step exists. Returns False, and reports nothing,
        if the stop was reported before or the training has finished.
        """
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
            log.warning("the rank ends without a checkpoint: the grace period is over")
            self._leave()


def time_to_leave_s(grace_s: float) -> float:
    """Return the seconds after which to exit, shortly before the process would be killed.

    >>> time_to_leave_s(20.0), time_to_leave_s(2.0)
    (19.0, 1.8)
    """
    return grace_s - min(LAST_MOMENT_S, 0.1 * grace_s)
