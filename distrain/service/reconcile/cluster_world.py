"""What a pass acts on: database, scheduler and run directories of one cluster."""

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distrain.errors import DistrainError, OutputError, SpecError
from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.jobs.status import JobStatus, storable
from distrain.jobs.view import JobView
from distrain.runs.run_file import RunInUse
from distrain.service.clusters.scheduler_client import Refused as RefusedBy, SchedulerClient
from distrain.service.decide.rules import places_of
from distrain.service.decide.world import (
    Accepted,
    Change,
    JobOrder,
    NotBegun,
    Outcome,
    Refusal,
    SchedulerAnswer,
    Silence,
)
from distrain.service.recorder.recorder import Recorder
from distrain.service.store.reconciler_writes import JobChange
from distrain.service.store.rows import Attempt
from distrain.service.store.store import Store
from distrain.service.values import Job, Phase

log = logging.getLogger(__name__)

_PASSING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    errno.EROFS,
}
"""Troubles of a machine, not of a job: a disk that is full for a while must not end a queue."""


class ClusterWorld:
    """The `World` of a cluster's passes; its calls raise Unavailable."""

    def __init__(self, cluster: str, store: Store, recorder: Recorder):
        self._cluster, self._store, self._recorder = cluster, store, recorder
        self.scheduler: SchedulerClient | None = None
        self.trouble = ""
        self._known: dict[str, Job] = {}  # as last read or written; nothing else is kept here

    def leave(self) -> None:
        """Forget records of a cluster that has gone to another process."""
        self._recorder.leave(self._cluster)

    def finish_late(self) -> None:
        """Finish what an earlier process left of the jobs that ended last."""
        columns = ("phase", "state", "reason", "message", "attempt")
        self._recorder.finish_late(
            [
                (job, _last_view(job, {name: getattr(job, name) for name in columns}))
                for job in self._store.ended(self._cluster)
            ]
        )

    def alive(self) -> list[Job]:
        jobs = self._store.alive(self._cluster, self._known)
        self._known = {job.id: job for job in jobs}
        return jobs

    def job(self, job_id: str) -> Job | None:
        return self._store.job(job_id)

    def ranks_in_use(self, projects: Sequence[str]) -> dict[str, int]:
        return {name: self._store.usage(name)["ranks"] for name in projects}

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer | Silence:
        if self.scheduler is None:
            return Silence(self.trouble)
        try:
            return self.scheduler.changes(since, epoch, collect_s=self._recorder.collects_s)
        except DistrainError as error:
            return Silence(error.message)

    def commit(self, changes: Sequence[Change]) -> set[str]:
        rows = [self._row(change) for change in changes]
        skipped = {one.job_id for one in self._store.record(self._cluster, rows, self._known)}
        for row in rows:
            if row.columns.get("phase") is Phase.FINAL and row.job_id not in skipped:
                self._recorder.release(row.job_id)
        return skipped

    def _since(self) -> int:
        """Which holder of the cluster's lock this process is, for its run directories."""
        return self._store.locks.since(f"cluster:{self._cluster}") or 0

    def _row(self, change: Change) -> JobChange:
        columns = {
            name: storable(value) if type(value) is str else value
            for name, value in change.columns.items()
        }
        attempts = attempts_of(change.job, columns)
        return JobChange(change.job.id, change.job.rev, columns, attempts)

    def attempts(self, job: Job) -> int | None:
        try:
            return self._recorder.attempts(job)
        except DistrainError as error:
            log.warning("job %s is handed over later: %s", job.id, error)
        except Exception:  # of this job's files alone: the others of its cluster go on
            log.exception("job %s is handed over later", job.id)
        return None

    def begin(self, job: Job) -> NotBegun | None:
        try:
            self._recorder.begin(job, self._store.spec(job.id), self._since())
        except OutputError as error:
            words = storable(str(error))
            return NotBegun(Reason.OUTPUT_ERROR, words, for_now=_may_pass(error))
        except SpecError as error:
            return NotBegun(Reason.INVALID_SPEC, storable(str(error)))
        except DistrainError as error:
            log.warning("job %s: its run directory is not ready: %s", job.id, error)
            return NotBegun(Reason.OUTPUT_ERROR, storable(str(error)), for_now=True)
        except Exception as error:  # of this job's files alone: the others of its cluster go on
            log.exception("job %s: its run directory is not ready", job.id)
            words = f"its run directory cannot be used: {error}"
            return NotBegun(Reason.OUTPUT_ERROR, storable(words), for_now=True)
        return None

    def put(self, job: Job) -> Outcome:
        spec = self._store.spec(job.id)
        return self._ask(
            lambda to: to.put(
                job.id,
                spec,
                job.run_dir,
                first_attempt=job.first_attempt,
                epoch=job.epoch or "",
                priority=job.priority,
            )
        )

    def send(self, job_id: str, order: JobOrder) -> Outcome:
        return self._ask(lambda to: to.order(job_id, order.name, order.words))

    def _ask(self, order: Callable[[SchedulerClient], object]) -> Outcome:
        if self.scheduler is None:
            return Silence(self.trouble)
        try:
            order(self.scheduler)
        except RefusedBy as error:
            return Refusal(error.code, error.message, error.ended)
        except DistrainError as error:
            return Silence(error.message)
        return Accepted()

    def record(self, job: Job, seen: JobStatus) -> None:
        try:
            if seen.view is not None:
                self._recorder.take(job, seen.view)
        except Exception:  # of this job's files alone: the others of its cluster go on
            log.exception("job %s: what it reports is not recorded", job.id)

    def finish(self, job: Job, columns: Mapping[str, Any], seen: JobStatus | None) -> bool:
        view = seen.view if seen is not None else None
        if view is None or not view.state.is_final:
            view = _last_view(job, columns)
        done = False
        try:
            done = self._recorder.finish(job, view)
        except DistrainError as error:
            log.warning("job %s: its run directory is not finished: %s", job.id, error)
        except Exception:  # of this job's files alone: the others of its cluster go on
            log.exception("job %s: its run directory is not finished", job.id)
        return done


def _may_pass(error: OutputError) -> bool:
    """Whether a run directory may be written later, once its writer or the disk lets it."""
    cause = error.__cause__
    return isinstance(error, RunInUse) or (isinstance(cause, OSError) and cause.errno in _PASSING)


def _last_view(job: Job, columns: Mapping[str, Any]) -> JobView:
    """The end of a job that no scheduler reports any more."""
    assert columns["phase"] is Phase.FINAL
    return JobView(
        job.id,
        job.name,
        JobState(columns["state"]),
        max(job.attempt, int(columns.get("attempt", 0))),
        job.num_ranks,
        columns.get("reason"),
        columns.get("message"),
        missed=1,  # what was lost with the scheduler stands in the reports that the ranks kept
    )


def attempts_of(job: Job, columns: Mapping[str, Any]) -> tuple[Attempt, ...]:
    epoch = str(columns.get("epoch") or job.epoch or "")
    now_s = float(columns.get("observed_at_s") or 0.0)
    # An end that no scheduler tells has no number: it is that of the attempt before.
    number = int(columns.get("attempt") or (columns.get("finished_at_s") and job.attempt) or 0)
    progress = columns.get("progress", job.progress)
    reason = columns.get("reason", job.reason)
    message = columns.get("message", job.message)
    rows = []
    if number > job.attempt > 0:
        ended = Attempt(job.id, job.attempt, epoch, job.started_at_s or now_s, now_s)
        rows.append(replace(ended, **places_of(job.progress)))
    if number and (number != job.attempt or columns.get("finished_at_s")):
        began_s = now_s if number != job.attempt else job.started_at_s or now_s
        now = Attempt(job.id, number, epoch, began_s, step=progress.get("step"))
        if ended_s := columns.get("finished_at_s"):
            now = replace(now, ended_at_s=ended_s, reason=reason, message=message)
            now = replace(now, **places_of(progress))
        rows.append(now)
    return tuple(rows)
