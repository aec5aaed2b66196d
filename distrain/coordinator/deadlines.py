"""The deadlines of a job: in the queue, of an attempt's start, and of its end."""

from distrain.coordinator.job import Failure, Job
from distrain.coordinator.states import JobState, Reason


def missed_deadline(job: Job, now_s: float) -> Failure | None:
    """The deadline that a job has missed, if it has, and what it was waiting for.

    The queue's deadline holds until the job is placed for the first time: a preempted job may wait
    as long as it takes. The start's deadline counts from each placement anew. It also bounds how
    long a restart waits for workers, since others are kept from those that are reserved for it.
    """
    request = job.request
    total_s = request.total_deadline_s
    if total_s is not None and now_s - job.submitted_s > total_s:
        message = f"the job did not end within {total_s:g} s (deadlines.total_s)"
        return Failure(Reason.DEADLINE_EXCEEDED, message)
    queue_s = request.queue_deadline_s
    queued = job.state is JobState.PENDING and not job.restarts
    if queue_s is not None and queued and now_s - job.submitted_s > queue_s:
        message = f"the job waited in the queue for more than {queue_s:g} s (deadlines.queue_s)"
        return Failure(Reason.QUEUE_DEADLINE_EXCEEDED, f"{message}: {job.why_pending}")
    since_s = job.starting_since_s
    if since_s is not None and now_s - since_s > request.start_deadline_s:
        return Failure(Reason.START_DEADLINE_EXCEEDED, _late_start(job))
    return None


def _late_start(job: Job) -> str:
    within = f"within {job.request.start_deadline_s:g} s"
    if job.state is JobState.RESTARTING:
        return f"the job was not placed again {within} (deadlines.start_s): {job.why_pending}"
    missing = [str(rank) for rank, status in job.ranks.items() if not status.ready]
    return (
        f"attempt {job.attempt} did not start {within} of its placement (deadlines.start_s): "
        f"rank {', '.join(missing)} did not get ready"
    )
