"""What is shown of a job: what the lifecycle and the collector know of it, together."""

from distrain.jobs import JobState, JobStatus, JobView, targets_in
from distrain.lifecycle import Failure, Job
from distrain.progress import Collector
from distrain.spec import JobSpec


def show(job: Job, name: str, collector: Collector, since: int | None) -> JobView:
    """A view of a job, with its progress from entry `since` on; `None`: without progress."""
    waits = job.state.waits
    cause = job.culprit if job.state.is_final else None
    return JobView(
        job_id=job.job_id,
        name=name,
        state=job.state,
        attempt=job.attempt,
        num_ranks=job.num_ranks,
        reason=cause.reason if cause else None,
        message=_full_message(cause) if cause else None,
        why_pending=job.why_pending if waits else _what_it_waits_for(job),
        pids=tuple(status.pid for status in job.ranks.values()),
        progress=tuple(collector.entries.since(since)) if since is not None else (),
        missed=_missed(job, collector, since) if since is not None else 0,
        restarts=tuple(job.restarts),
        **collector.shown(),
    )


def status_of(
    job: Job, spec: JobSpec, run_dir: str, collector: Collector, now_s: float
) -> JobStatus:
    """A job without its view, at a time on the lifecycle's clock."""
    last, valid = (collector.entries.last.get(split) for split in ("train", "valid"))
    waits = job.state.waits
    cause = job.culprit if job.state.is_final else None
    return JobStatus(
        job_id=job.job_id,
        name=spec.name,
        state=job.state.value,
        attempt=job.attempt,
        num_ranks=len(job.ranks) or job.num_ranks,
        reason=cause.reason if cause else None,
        message=cause.message if cause else None,
        why_pending=job.why_pending if waits else "",
        restarts=len(job.restarts),
        step=last.step if last else 0,
        num_steps=collector.num_steps,
        first_attempt=job.request.first_attempt,
        checkpoints=collector.checkpoints.count,
        rows_per_s=last.rows_per_s if last and job.state is JobState.RUNNING else None,
        loss=last.loss if last else None,
        auc=last.auc if last else None,
        valid_loss=valid.loss if valid else None,
        valid_auc=valid.auc if valid else None,
        targets=targets_in(last and last.targets),
        valid_targets=targets_in(valid and valid.targets),
        age_s=now_s - job.submitted_s,
        priority=job.request.priority,
        run_dir=run_dir,
        tags=dict(spec.tags),
    )


def _missed(job: Job, collector: Collector, since: int) -> int:
    # What a worker did not tell before it was lost has no attempt after it that would show it.
    return collector.entries.missed(since) + (job.state is JobState.FAILED)


def _what_it_waits_for(job: Job) -> str:
    """Why a running job does not go on, as far as its ranks know."""
    if job.state not in (JobState.STARTING, JobState.RUNNING):
        return ""
    ranks = [str(rank) for rank, status in job.ranks.items() if status.waiting_for == "storage"]
    if not ranks:
        return ""
    return f"rank {', '.join(ranks)} waits for storage that does not answer; see the rank's log"


def _full_message(failure: Failure) -> str:
    parts = [failure.message]
    if failure.traceback:
        parts.append(failure.traceback.rstrip())
    elif failure.log_tail:
        parts.append("its last words:\n" + failure.log_tail.rstrip())
    return "\n".join(parts)
