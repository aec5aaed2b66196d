"""Makes the views of jobs, and keeps a short document (tombstone) of each removed job."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from distrain.jobs.api_answers import Job as EndedJob
from distrain.jobs.assignment import Slot
from distrain.jobs.job_view import JobView
from distrain.jobs.states import JobState
from distrain.runs.records.collector import Collector
from distrain.scheduler.lifecycle.job import AttemptFailure, Job
from distrain.version import build


def show(job: Job, collector: Collector, outcome: tuple[bool, str], since: int | None) -> JobView:
    """Return a job's state in the form that clients read.

    Args:
        job: The job in the lifecycle.
        collector: The progress that its ranks reported.
        outcome: The result of `Recordings.outcome`: whether the summary is written, and any error.
        since: The number of the first entry of progress that the view includes; `None`: no
            progress.
    """
    recorded, record_error = outcome
    waits = job.state.waits
    cause = job.culprit if job.state.is_final else None
    return JobView(
        job_id=job.job_id,
        name=job.spec.name,
        state=job.state,
        attempt=job.attempt,
        num_ranks=job.num_ranks,
        reason=cause.reason if cause else None,
        message=_full_message(cause) if cause else None,
        why_pending=job.why_pending if waits else _what_it_waits_for(job),
        pids=tuple(status.pid for status in job.ranks.values()),
        progress=tuple(collector.entries.since(since)) if since is not None else (),
        restarts=tuple(job.restarts),
        recorded=recorded,
        record_error=record_error,
        **collector.shown(),
    )


def _what_it_waits_for(job: Job) -> str:
    """Return a text on the ranks of a running job that wait for storage; "" if none do."""
    if job.state not in (JobState.STARTING, JobState.RUNNING):
        return ""
    ranks = [str(rank) for rank, status in job.ranks.items() if status.waiting_for == "storage"]
    if not ranks:
        return ""
    return f"rank {', '.join(ranks)} waits for storage that does not answer; see the rank's log"


def _full_message(failure: AttemptFailure) -> str:
    parts = [failure.message]
    if failure.traceback:
        parts.append(failure.traceback.rstrip())
    elif failure.log_tail:
        parts.append("its last output:\n" + failure.log_tail.rstrip())
    return "\n".join(parts)


KEPT = 10_000  # maximum number of tombstones (documents of ended jobs); the oldest are dropped
_MESSAGE_CHARACTERS = 1000


def tombstone_of(job: Job, service: str | None) -> EndedJob:
    """Return a short document about an ended job, which is kept when the job is removed.

    `service` is the id of the service that submitted the job; `None`: a Dask client did.
    """
    cause = job.culprit
    return EndedJob(
        id=job.job_id,
        name=job.spec.name,
        state=job.state.value,
        attempt=job.attempt,
        num_ranks=job.num_ranks,
        reason=cause.reason if cause else None,
        message=cause.message[:_MESSAGE_CHARACTERS] if cause else None,
        first_attempt=job.request.first_attempt,
        service=service,
        recorded=True,
    )


def last_attempt(ended: EndedJob) -> int:
    """Return the number of the last attempt that an ended job had, or else was submitted for."""
    return max(ended.attempt, ended.first_attempt)


class Tombstones(OrderedDict[str, EndedJob]):
    """The newest tombstones by job id: short documents that remain of removed jobs.

    If the last submission ended before its first attempt, `attempt` is below `first_attempt`.
    """

    def add(self, ended: EndedJob) -> None:
        """Add the short document of an ended job, unless a later submission of the job has one."""
        kept = self.get(ended.id)
        if kept is None or last_attempt(kept) <= last_attempt(ended):
            self[ended.id] = ended
        self.move_to_end(ended.id)
        while len(self) > KEPT:
            self.popitem(last=False)


def last_view(ended: EndedJob) -> JobView:
    """Return the view of a removed job, without progress.

    A view is the form in which clients read a job's state. `ended` is the job's tombstone.
    """
    return JobView(
        ended.id,
        ended.name,
        JobState(ended.state),
        ended.attempt,
        ended.num_ranks,
        ended.reason,
        ended.message,
        recorded=True,
    )


def slot_of(state: Any) -> Slot:
    """Return the `Slot` of a worker (its host, address and name), given Dask's `WorkerState`.

    The slot's name is the name that the worker was given, or else its nanny's address; both stay
    the same when the nanny restarts the worker. "" if the worker has neither.
    """
    named = state.name is not None and state.name != state.address
    return Slot(state.host, state.address, str(state.name) if named else state.nanny or "")


def other_builds(builds: Mapping[str, str]) -> str:
    """Return why workers with other builds of distrain get no ranks; "" if `builds` is empty.

    `builds` maps such workers' addresses to their builds; "" for workers that reported none.
    """
    others = {worker: theirs for worker, theirs in builds.items() if theirs}
    if others:
        worker, theirs = min(others.items())
        return (
            f"{len(others)} more run another build of distrain than the scheduler's {build()}, "
            f"such as {worker} ({theirs}): install the same there, and start them again"
        )
    if builds:
        return (
            f"{len(builds)} more have not reported their build of distrain yet, such as "
            f"{min(builds)}; versions older than this one never do: install {build()} there"
        )
    return ""
