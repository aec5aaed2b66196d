"""The deadlines that begin with the submission of a job."""

from distrain.jobs.reasons import Reason
from distrain.jobs.spec.resources import DeadlinesSpec


def missed_since_submission(
    deadlines: DeadlinesSpec, age_s: float, *, is_queued: bool
) -> tuple[Reason, str] | None:
    """Return the reason and message of a missed total or queue deadline; `None` if none is missed.

    `age_s` is the time since the job's submission in seconds, and `is_queued` whether it has not
    had workers yet: the queue deadline applies until the first placement.
    """
    total_s, queue_s = deadlines.total_s, deadlines.queue_s
    if total_s is not None and age_s > total_s:
        message = f"the job did not end within {total_s:g} s (deadlines.total_s)"
        return Reason.DEADLINE_EXCEEDED, message
    if queue_s is not None and is_queued and age_s > queue_s:
        message = f"the job waited in the queue for more than {queue_s:g} s (deadlines.queue_s)"
        return Reason.QUEUE_DEADLINE_EXCEEDED, message
    return None
