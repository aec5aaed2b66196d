"""Implements a pass's `World` with the database, scheduler and run folders of a cluster."""

import errno
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distrain.errors import DistrainError, InputError, OutputError, SpecError
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.status import restart_in, storable
from distrain.runs.run_file import RunInUse
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.job_actions import places_of
from distrain.service.decisions.world import JobOrder, NotBegun, SchedulerAnswer, Unreachable
from distrain.service.reconcile.run_folders import RunFolders
from distrain.service.store.store import Store
from distrain.service.values import Attempt, Change, Job, Phase

log = logging.getLogger(__name__)

COLLECT_S = (2.0, 15.0)
"""The shortest and the longest time for which a scheduler holds back its report of jobs of which
only the metrics have changed, to send them together. A change of state is reported immediately."""
METRICS_PER_S = 75.0  # the largest number of writes of metrics only, per second

_PASSING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    errno.EROFS,
}
"""Errors of a machine, not of a job: a temporarily full disk must not fail queued jobs."""


class ClusterWorld:
    """The `World` of a cluster's passes.

    Calls raise Unavailable if the database does not answer. The caller sets `scheduler`, and in
    `trouble` why there is none; and `collect_s`, the seconds for which the scheduler may hold back
    metrics.
    """

    def __init__(self, cluster: str, store: Store, folders: RunFolders):
        self._cluster, self._store, self._folders = cluster, store, folders
        self.scheduler: SchedulerClient | None = None
        self.trouble = ""
        self.collect_s, _ = COLLECT_S
        self._known: dict[str, Job] = {}  # as last read or written; the only cached state

    def alive(self) -> list[Job]:
        jobs = self._store.alive(self._cluster, self._known)
        self._known = {job.id: job for job in jobs}
        return jobs

    def job(self, job_id: str) -> Job | None:
        return self._store.job(job_id)

    def ranks_in_use(self, projects: Sequence[str]) -> dict[str, int]:
        return {name: self._store.usage(name)["ranks"] for name in projects}

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer:
        return self._reached().changes(since, epoch, collect_s=self.collect_s)

    def commit(self, changes: Sequence[Change]) -> set[str]:
        written = [_storable(change) for change in changes]
        return {one.job.id for one in self._store.record(self._cluster, written, self._known)}

    def prepare(self, job: Job) -> int:
        try:
            return self._folders.prepare(job, parse_spec(self._store.spec(job.id)))
        except SpecError as error:
            raise NotBegun(Reason.INVALID_SPEC, str(error)) from error
        except Exception as error:  # only this job's files are affected: the other jobs continue
            raise _not_begun(job, error) from error

    def put(self, job: Job, now_s: float) -> None:
        spec = self._store.spec(job.id)
        self._reached().put(
            job.id,
            spec,
            job.run_dir,
            first_attempt=job.first_attempt,
            epoch=job.epoch or "",
            priority=job.priority,
            age_s=job.age_s(now_s),
            has_run=job.started_at_s is not None,
        )

    def send(self, job_id: str, order: JobOrder) -> None:
        self._reached().order(job_id, order.name, order.words)

    def _reached(self) -> SchedulerClient:
        if self.scheduler is None:
            raise Unreachable(self.trouble)
        return self.scheduler

    def finish(self, job: Job, columns: Mapping[str, Any]) -> None:
        self._folders.finish(job, _last_view(job, columns))


def _storable(change: Change) -> Change:
    columns = {
        name: storable(value) if type(value) is str else value
        for name, value in change.columns.items()
    }
    return Change(change.job, columns, attempts_of(change.job, columns))


def _not_begun(job: Job, error: Exception) -> NotBegun:
    """Return the error for the pass after preparing a run folder failed with `error`.

    An error that may pass is logged, unless it is the job's reason to wait already.
    """
    is_ours = isinstance(error, DistrainError)
    words = str(error) if is_ours else f"its run folder cannot be used: {error}"
    found = NotBegun(Reason.OUTPUT_ERROR, words, for_now=_may_pass(error))
    if found.for_now and found.message != job.why_pending:
        cause = None if is_ours else error  # a traceback only for a mistake
        log.warning("job %s: its run folder is not ready: %s", job.id, words, exc_info=cause)
    return found


def _may_pass(error: Exception) -> bool:
    """Return True if preparing a run folder may succeed later, after it failed with `error`."""
    if isinstance(error, OutputError) and not isinstance(error, RunInUse):
        return isinstance(error.__cause__, OSError) and error.__cause__.errno in _PASSING
    return not isinstance(error, InputError)  # `run.json` was replaced or damaged


def _last_view(job: Job, columns: Mapping[str, Any]) -> JobView:
    """Return the final state of a job that no scheduler reports, for the job's summary."""
    assert columns["phase"] is Phase.FINAL
    return JobView(
        job.id,
        job.name,
        JobState(columns["state"]),
        max(job.attempt, int(columns.get("attempt", 0))),
        job.num_ranks,
        columns.get("reason"),
        columns.get("message"),
    )


def collect_s(num_jobs: int) -> float:
    """Return for how many seconds a scheduler may hold back metrics of `num_jobs` jobs.

    >>> collect_s(3), collect_s(600), collect_s(100_000)
    (2.0, 8.0, 15.0)
    """
    least_s, most_s = COLLECT_S
    return min(max(least_s, num_jobs / METRICS_PER_S), most_s)


def attempts_of(job: Job, columns: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """Return the attempts that begin or end when `columns` are written to the row of `job`.

    They are added to, or completed in, the table of attempts. An attempt ends when its job waits in
    the scheduler's queue again, and holds no workers. If no scheduler reported its end, it ends
    with its last report, since its ranks may have been gone for long.
    """
    epoch = str(columns.get("epoch") or job.epoch or "")
    now_s = float(columns.get("observed_at_s") or 0.0)
    # An end that no scheduler reported has no attempt number: use the job's last one.
    number = int(columns.get("attempt") or (columns.get("finished_at_s") and job.attempt) or 0)
    progress = columns.get("progress", job.progress)
    reason = columns.get("reason", job.reason)
    message = columns.get("message", job.message)
    restart = restart_in(progress.get("last_restart")) or {}
    rows = []
    is_lost = columns.get("scheduler_losses", 0) > job.scheduler_losses
    reported_s = job.observed_at_s or now_s
    has_begun = job.attempt >= job.first_attempt
    # the attempt that has ended if the job waits in the queue again; 0: none
    queued = restart.get("attempt", 0) if columns.get("state") == JobState.PENDING else 0
    if number > job.attempt > 0 or (is_lost and has_begun) or 0 < queued == job.attempt:
        step = job.progress.get("step")
        began_s, old = job.started_at_s or now_s, str(job.epoch or "")
        ended_s = reported_s if is_lost else now_s
        ended = Attempt(job.id, job.attempt, old, began_s, ended_s, step=step)
        why = restart if restart.get("attempt") == job.attempt else {}
        if is_lost:
            why = {"reason": Reason.COORDINATOR_LOST, "message": "its scheduler was lost"}
        rows.append(replace(ended, **places_of(job.progress), **why))
    if job.attempt < restart.get("attempt", 0) < number:  # it began and ended unobserved
        rows.append(Attempt(job.id, **restart, epoch=epoch, started_at_s=now_s, ended_at_s=now_s))
    if number and (number != job.attempt or columns.get("finished_at_s")):
        began_s = now_s if number != job.attempt else job.started_at_s or now_s
        now = Attempt(job.id, number, epoch, began_s, step=progress.get("step"))
        if columns.get("finished_at_s"):
            ended_s = columns["finished_at_s"] if "attempt" in columns else reported_s
            now = replace(now, ended_at_s=ended_s, reason=reason, message=message)
            now = replace(now, **places_of(progress))
        elif queued == number:
            now = replace(now, **restart, ended_at_s=now_s)
        rows.append(now)
    return tuple(rows)
