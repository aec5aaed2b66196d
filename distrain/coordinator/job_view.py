"""What people are shown of a job: the machine's side and the collector's together. Pure."""

from distrain.coordinator.collector import Collector
from distrain.coordinator.job import Failure, Job
from distrain.coordinator.states import JobState
from distrain.coordinator.view import JobView, Setback


def show(job: Job, name: str, collector: Collector, since: int | None) -> JobView:
    """A view of a job.

    Args:
        job: What the machine knows of it.
        name: From its spec.
        collector: What its ranks have told.
        since: The first entry of its progress to be shown; `None` shows none.
    """
    waits = job.state in (JobState.PENDING, JobState.RESTARTING)
    cause = job.culprit if job.state.is_final else None
    return JobView(
        job_id=job.job_id,
        name=name,
        state=job.state,
        attempt=job.attempt,
        num_ranks=job.num_ranks,
        reason=cause.reason if cause else None,
        message=_tell(cause) if cause else None,
        why_pending=job.why_pending if waits else _what_it_waits_for(job),
        pids=tuple(status.pid for status in job.ranks.values()),
        progress=tuple(collector.entries.since(since)) if since is not None else (),
        missed=max(0, collector.entries.first - since) if since is not None else 0,
        restarts=tuple(
            Setback(r.attempt, r.reason, r.message, r.step, r.at_s - job.submitted_s)
            for r in job.restarts
        ),
        **collector.shown(),
    )


def _what_it_waits_for(job: Job) -> str:
    """Who keeps a job from going on that runs, as far as its ranks know."""
    if job.state not in (JobState.STARTING, JobState.RUNNING):
        return ""
    ranks = [str(rank) for rank, status in job.ranks.items() if status.waiting_for == "storage"]
    if not ranks:
        return ""
    return f"rank {', '.join(ranks)} waits for storage that does not answer; see the rank's log"


def _tell(failure: Failure) -> str:
    parts = [failure.message]
    if failure.traceback:
        parts.append(failure.traceback.rstrip())
    elif failure.log_tail:
        parts.append("its last words:\n" + failure.log_tail.rstrip())
    return "\n".join(parts)
