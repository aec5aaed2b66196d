"""New jobs: each with its spec, tags, key and event in one transaction, within the quota.

On PostgreSQL all rows of a new job are one statement; it is the whole transaction where the
project's quota counts nothing.

Two requests with one key meet at the key's row, which is written first: the second waits there
until the first has ended, and then reads its job. Two requests of one project meet at the project's
row, locked last, so that what the quota counts does not change until the transaction ends.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from distrain.jobs import JobState
from distrain.service.store import rows, tables
from distrain.service.store.auditing import Deed, put_deed
from distrain.service.store.engine import Database
from distrain.service.store.errors import NotNow, NotThere, quota_exceeded
from distrain.service.store.submitting.keys import (
    find_key,
    first_job,
    found,
    keys_in_flight,
    take_key,
)
from distrain.service.store.submitting.one_statement import fresh, put_all, written
from distrain.service.values import Intent, Job, NewJob, Phase, Quota, RequestKey

WITH_WORKERS = tuple(
    state.value for state in JobState if state.holds_workers or state is JobState.RESTARTING
)
_jobs = tables.jobs

# Statements of each submission, made once: SQLAlchemy takes longer to make one than to run it.
_QUOTA = select(tables.projects.c.quota).where(tables.projects.c.name == bindparam("project"))
_LOCK_PROJECT = _QUOTA.with_for_update()
_PUT_JOB = insert(_jobs).returning(_jobs.c.seq)
_PUT_SPEC = insert(tables.specs)
_PUT_TAGS = insert(tables.job_tags)


class Submitting:
    db: Database

    def submit(
        self, new: NewJob, key: RequestKey, deed: Deed | None = None, *, is_counted: bool = True
    ) -> tuple[Job, bool]:
        """Take a job, or find that of an earlier request with the key; and whether it is new.

        `is_counted`, whether the quota counted jobs a moment ago, says only what is tried first.
        Raises NotThere (project, the key's job), KeyReused, KeyInFlight, QuotaExceeded.
        """
        if self.db.is_postgres and not is_counted:
            with self.db.read() as connection:  # its one statement is a transaction of its own
                job = _put_all(connection, new, key, deed, unless_counted=True)
            if job is not None:
                return job, True
        if not self.db.is_postgres or not is_counted:  # a replay needs no transaction that writes
            known = self.find_key(key)
            if known is not None:
                return known, False

        def work(connection: Connection) -> tuple[Job, bool]:
            if self.db.is_postgres:
                job = _put_all(connection, new, key, deed, unless_counted=False)
                known = None if job is not None else find_key(connection, key)
            else:
                known, now_s = take_key(connection, key, new.id, self.db)
                job = _put_each(connection, new, deed, now_s) if known is None else None
            if job is None:
                return first_job(known), False
            _see_quota(connection, job, is_counted)
            return job, True

        return self.db.together(work)

    def find_key(self, key: RequestKey) -> Job | None:
        with self.db.read() as connection:
            return find_key(connection, key)

    def resume(
        self,
        job_id: str,
        spec: Mapping[str, Any],
        num_ranks: int,
        key: RequestKey,
        deed: Deed | None = None,
    ) -> tuple[Job, bool]:
        """Queue an ended job again; whether this call did it. Raises as `submit`, and NotNow."""
        with self.db.write() as connection:
            known, now_s = take_key(connection, key, job_id, self.db)
            if known is not None:
                return known, False
            before = found(connection, job_id, lock=True)
            if before.phase is not Phase.FINAL:
                raise NotNow(
                    "a job that has not ended cannot be resumed",
                    where={"job": job_id, "state": before.state},
                    hint="Cancel it first, and wait until it has ended.",
                )
            job = _requeue(connection, before, num_ranks)
            document = tables.specs
            connection.execute(
                update(document).where(document.c.job_id == job_id).values(document=dict(spec))
            )
            rows.tell(connection, [(job, rows.STATE, None)], now_s)
            if deed is not None:
                put_deed(connection, deed, now_s)
            _see_quota(connection, job)
        return job, True


def waiting() -> ColumnElement[bool]:
    """Jobs that have not ended and hold no workers, as quotas count them."""
    return and_(_jobs.c.finished_at_s.is_(None), _jobs.c.state.not_in(WITH_WORKERS))


def _count_up_to(*which: ColumnElement[bool]) -> Select[Any]:
    """A project's waiting jobs, counted up to `most`: a long queue takes no longer."""
    of_project = _jobs.c.project == bindparam("of_project")
    some: Select[Any] = select(literal_column("1")).where(of_project, *which, waiting())
    return select(func.count()).select_from(some.limit(bindparam("most")).subquery())


_COUNT_ALL = _count_up_to()
_COUNT_OWN = _count_up_to(_jobs.c.owner == bindparam("of_owner"))
_MOST = 2**40


def _put_all(
    connection: Connection, new: NewJob, key: RequestKey, deed: Deed | None, *, unless_counted: bool
) -> Job | None:
    with keys_in_flight():
        return put_all(connection, new, key, deed, unless_counted=unless_counted)


def _see_quota(connection: Connection, job: Job, is_counted: bool = False) -> None:
    """Lock the project, last, and check its quota against a job that is in the queue already."""
    if not is_counted and not _quota(connection, _QUOTA, job.project).counts_queued:
        return
    quota = _quota(connection, _LOCK_PROJECT, job.project)  # perhaps another by now
    if not quota.counts_queued:
        return
    of = {"of_project": job.project, "of_owner": job.owner}
    limits = (
        ("max_queued", _COUNT_ALL, {"of_project": job.project}),
        ("max_queued_per_user", _COUNT_OWN, of),
    )
    for name, count, values in limits:
        limit = getattr(quota, name)
        if limit is None:
            continue
        most = {"most": min(limit + 1, _MOST)}
        if connection.execute(count, values | most).scalar_one() > limit:
            raise quota_exceeded(name, limit, job.project)


def _quota(connection: Connection, statement: Select[Any], project: str) -> Quota:
    row = connection.execute(statement, {"project": project}).first()
    if row is None:
        raise NotThere("no such project", where={"project": project})
    return Quota(**row.quota)


def _put_each(connection: Connection, new: NewJob, deed: Deed | None, now_s: float) -> Job:
    job = fresh(new, now_s)
    row = written(job) | {"created_at_s": now_s}
    job = dataclasses.replace(job, seq=connection.execute(_PUT_JOB, row).scalar_one())
    connection.execute(_PUT_SPEC, {"job_id": new.id, "document": dict(new.spec)})
    put_tags(connection, job)
    rows.tell(connection, [(job, rows.STATE, None)], now_s)
    if deed is not None:
        put_deed(connection, deed, now_s)
    return job


def put_tags(connection: Connection, job: Job) -> None:
    table = tables.job_tags
    if job.rev > 1:
        connection.execute(delete(table).where(table.c.seq == job.seq))
    if job.tags:
        tags = [{"key": key, "value": value, "seq": job.seq} for key, value in job.tags.items()]
        connection.execute(_PUT_TAGS, tags)


def _requeue(connection: Connection, job: Job, num_ranks: int) -> Job:
    again = {
        "rev": job.rev + 1,
        "num_ranks": num_ranks,
        "intent": Intent.RUN.value,
        "resumes": job.resumes + 1,
        "cancel_why": "",
        "cancel_grace_s": None,
        "phase": Phase.QUEUED.value,
        # A submission that ended before its first attempt has used that number up all the same.
        "first_attempt": max(job.attempt + 1, job.first_attempt),
        "epoch": None,
        "scheduler_losses": 0,
        "state": "queued",
        "reason": None,
        "message": None,
        "why_pending": "",
        "observed_at_s": None,
        "finished_at_s": None,
    }
    statement = update(_jobs).where(_jobs.c.id == job.id).values(again).returning(*_jobs.c)
    return rows.job_of(connection.execute(statement).one())
