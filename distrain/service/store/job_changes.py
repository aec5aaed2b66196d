"""Reads, changes, cancels and deletes existing jobs."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.service.store import rows, tables
from distrain.service.store.engine import Database
from distrain.service.store.errors import WrongState
from distrain.service.store.rows import found, no_such_job
from distrain.service.store.submitting import WITH_WORKERS, put_tags, waiting
from distrain.service.values import Attempt, Intent, Job, Phase

_jobs = tables.jobs
_NO_TAGS: Mapping[str, str | None] = MappingProxyType({})


class Changing:
    db: Database

    def job(self, job_id: str) -> Job | None:
        row = self.db.first(select(_jobs).where(_jobs.c.id == job_id))
        return None if row is None else rows.job_of(row)

    def spec(self, job_id: str) -> dict[str, Any]:
        """Return the spec of a job's current submission; raises RowNotFound."""
        table = tables.specs
        row = self.db.first(select(table.c.document).where(table.c.job_id == job_id))
        if row is None:
            raise no_such_job(job_id)
        document: dict[str, Any] = row.document
        return document

    def specs(self, job_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the specs of jobs' current submissions, by job id; unknown jobs are omitted."""
        table = tables.specs
        statement = select(table.c.job_id, table.c.document).where(table.c.job_id.in_(job_ids))
        return {row.job_id: row.document for row in self.db.all(statement)}

    def attempts(self, job_id: str) -> list[Attempt]:
        table = tables.attempts
        statement = select(table).where(table.c.job_id == job_id).order_by(table.c.attempt)
        return [Attempt(**row._mapping) for row in self.db.all(statement)]

    def usage(self, project: str) -> dict[str, int]:
        """Return a project's numbers of `ranks` and `queued` jobs, without jobs that have ended.

        `ranks` is the sum of the ranks of jobs that are handed over to a cluster, or are being
        handed over. `queued` is the number of jobs that hold no workers. A job may count in both.
        """
        handed_over = func.sum(_jobs.c.num_ranks).filter(_jobs.c.phase != Phase.QUEUED.value)
        counted = select(func.coalesce(handed_over, 0), func.count().filter(waiting()))
        counted = counted.where(_jobs.c.project == project, _jobs.c.finished_at_s.is_(None))
        [(ranks, queued)] = self.db.all(counted)
        return {"ranks": int(ranks), "queued": int(queued)}

    def change(
        self,
        job_id: str,
        priority: int | None = None,
        tags: Mapping[str, str | None] = _NO_TAGS,
        check_tags: Callable[[Mapping[str, str], Mapping[str, str]], object] = lambda *_: None,
    ) -> Job:
        """Change a job's priority, unless it is `None`, and the given tags; return the job.

        A tag is removed if its value is `None`. If tags change, `check_tags` is called with all
        tags of the job, new and old; it may reject the new ones by an error. Raises RowNotFound,
        and WrongState for a new priority of a job that has started or ended.
        """
        with self.db.write() as connection:
            job = found(connection, job_id, lock=True)
            changes: dict[str, Any] = {}
            if priority is not None and priority != job.priority:
                _refuse_late_priority(job)
                changes["priority"] = priority
            merged = {**job.tags, **tags}
            new_tags = {name: value for name, value in merged.items() if value is not None}
            if new_tags != dict(job.tags):
                check_tags(new_tags, job.tags)
                changes["tags"] = new_tags
            if not changes:
                return job
            job = _write(self.db, connection, job, changes)
            if "tags" in changes:
                put_tags(connection, job)
        return job

    def cancel(self, job_id: str, why: str, grace_s: float | None, by: str, lost: str = "") -> Job:
        """Request the cancellation of a job for the user `by`; return the job. Raises RowNotFound.

        A queued job ends at once, and an ended job is not changed. `grace_s` is the time for the
        ranks to save a checkpoint, in seconds. A repeated call can only change `grace_s`.

        `lost` says why the job's cluster cannot be asked: then the job ends at once anyway, and
        its message has `lost`.
        """
        with self.db.write() as connection:
            job = found(connection, job_id, lock=True)
            if job.phase is Phase.FINAL:
                return job
            changes: dict[str, Any] = {}
            if job.intent is not Intent.CANCEL:
                told = f"cancelled by {by}" + (f": {why}" if why else "")
                changes = {"intent": Intent.CANCEL.value, "cancel_why": told}
            if grace_s is not None and grace_s != job.cancel_grace_s:
                changes["cancel_grace_s"] = grace_s
            if job.phase is Phase.QUEUED or lost:
                told = changes.get("cancel_why", job.cancel_why)
                if job.phase is not Phase.QUEUED:
                    told += f"; {lost}: its ranks, if there are any, were not reached"
                changes |= {
                    "phase": Phase.FINAL.value,
                    "state": JobState.CANCELLED.value,
                    "reason": Reason.CANCELLED.value,
                    "message": told,
                    "why_pending": "",
                    "first_attempt": job.unused_attempt,
                    "finished_at_s": self.db.now(),
                }
            return _write(self.db, connection, job, changes) if changes else job

    def delete(self, job_id: str) -> None:
        """Delete an ended job; its id cannot be used again.

        Raises RowNotFound, and WrongState for a job that has not ended.
        """
        with self.db.write() as connection:
            job = found(connection, job_id, lock=True)
            if job.phase is not Phase.FINAL:
                raise WrongState(
                    "a job that has not ended cannot be deleted",
                    where={"job": job_id, "state": job.state},
                    hint=f"distrain cancel {job_id}",
                )
            forget(connection, [job.id], [job.seq])
            now_s = self.db.now_s(connection)
            rows.write_events(connection, [(job, rows.DELETED, {"rev": job.rev + 1})], now_s)


def forget(connection: Connection, job_ids: list[str], seqs: list[int]) -> None:
    """Delete jobs, given by ids and sequence numbers, with all their data.

    Only their ids are kept, in `specs`, so that no new job gets them.
    """
    attempts, specs = tables.attempts, tables.specs
    connection.execute(delete(attempts).where(attempts.c.job_id.in_(job_ids)))
    empty = update(specs).where(specs.c.job_id.in_(job_ids))
    connection.execute(empty.values(document={}, request_sha256=None))
    connection.execute(delete(tables.job_tags).where(tables.job_tags.c.seq.in_(seqs)))
    connection.execute(delete(_jobs).where(_jobs.c.seq.in_(seqs)))


def _refuse_late_priority(job: Job) -> None:
    if job.phase is Phase.FINAL or job.state in WITH_WORKERS:
        raise WrongState(
            "the priority decides who starts next, and this job has started",
            where={"job": job.id, "state": job.state},
        )


def _write(db: Database, connection: Connection, job: Job, changes: dict[str, Any]) -> Job:
    statement = (
        update(_jobs)
        .where(_jobs.c.id == job.id)
        .values(rev=job.rev + 1, **changes)
        .returning(*_jobs.c)
    )
    changed = rows.job_of(connection.execute(statement).one())
    rows.write_events(connection, [(changed, rows.STATE, None)], db.now_s(connection))
    return changed
