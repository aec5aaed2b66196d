"""The deadlines of a job's start and of its end."""

from distrain.coordinator.job import Failure, Job
from distrain.coordinator.states import Reason


def missed_deadline(job: Job, now_s: float) -> Failure | None:
    """The deadline that a job has missed, if it has, and what it was waiting for.

    The one of the start counts from the submission or from a restart, not while a preempted job is
    in the queue again.
    """
    request, waits_s = job.request, job.waiting_since_s
    total_s = request.total_deadline_s
    if total_s is not None and now_s - job.submitted_s > total_s:
        message = f"the job did not end within {total_s:g} s"
        return Failure(Reason.DEADLINE_EXCEEDED, message)
    if waits_s is not None and now_s - waits_s > request.start_deadline_s:
        missing = [str(rank) for rank, status in job.ranks.items() if not status.ready]
        why = job.why_pending or f"rank {', '.join(missing)} did not get ready"
        again = " again" if job.restarts else ""
        message = f"the job did not start{again} within {request.start_deadline_s:g} s: {why}"
        return Failure(Reason.START_DEADLINE_EXCEEDED, message)
    return None
