"""Submits and resumes jobs: spec, tags and event in one transaction.

A job's id is unique, and its submitter chooses it. Of two simultaneous requests with the same id,
the second waits for the transaction of the first, and then compares its request hash with that of
the first. If the project's quota limits queued jobs, each request locks the project's row, as its
last lock, so that the number of queued jobs does not change until the transaction ends.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
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
from sqlalchemy.sql.dml import ReturningInsert

from distrain.jobs.states import JobState
from distrain.service.store import rows, tables
from distrain.service.store.engine import Database
from distrain.service.store.errors import (
    IdTaken,
    QuotaExceeded,
    RowNotFound,
    WrongState,
    quota_exceeded,
)
from distrain.service.store.people import stored_quota
from distrain.service.values import Intent, Job, Phase, Quota

WITH_WORKERS = tuple(
    state.value for state in JobState if state.holds_workers or state is JobState.RESTARTING
)
_jobs, _specs = tables.jobs, tables.specs
_SET_BY_DATABASE = ("seq", "created_at_s", "queued_at_s")
_WRITTEN = [column.name for column in _jobs.c if column.name not in _SET_BY_DATABASE]

_QUOTA = select(tables.projects.c.quota).where(tables.projects.c.name == bindparam("of_project"))
_LOCK_PROJECT = _QUOTA.with_for_update()
_DELETED = select(_specs.c.job_id).where(_specs.c.job_id == bindparam("deleted_id"))
_PUT_SPEC, _PUT_TAGS = insert(_specs), insert(tables.job_tags)


class Submitting:
    db: Database

    @cached_property
    def _put_job(self) -> ReturningInsert[Any]:
        """The statement that writes a job; it returns no row if a job has the id.

        Its row has the project's quota, and `deleted`, which is not null if a deleted job had the
        id: with PostgreSQL, further statements cost a round trip each. Building the statement takes
        longer than running it.
        """
        return (
            self.db.insert(_jobs)
            .values(created_at_s=self.db.now())
            .on_conflict_do_nothing(index_elements=["id"])
            .returning(
                _jobs.c.seq,
                _jobs.c.created_at_s,
                _QUOTA.scalar_subquery().label("quota"),
                _DELETED.scalar_subquery().label("deleted"),
            )
        )

    def submit(
        self, new: Job, spec: Mapping[str, Any], request_sha256: str = ""
    ) -> tuple[Job, bool]:
        """Queue a job, or find that of an equal earlier request; return it, and whether it is new.

        `spec` is the spec with all defaults, as JSON values. Equal requests have the same owner and
        `request_sha256`. Raises IdTaken, RowNotFound if there is no such project, and
        QuotaExceeded.
        """
        document = {"document": dict(spec), "request_sha256": request_sha256}
        with self.db.write() as connection:
            job = _put(connection, self._put_job, new, document)
            if job is None:
                return _made(connection, new.id, new.owner, request_sha256), False
        return job, True

    def made_before(self, job_id: str, owner: str, request_sha256: str) -> Job | None:
        """Return the job with this id, if an equal earlier request of this user has created it.

        Returns `None` if there is no such job, or another user or request has created it.
        """
        with self.db.read() as connection:
            try:
                return _made(connection, job_id, owner, request_sha256)
            except (IdTaken, RowNotFound):
                return None

    def resume(
        self, job_id: str, spec: Mapping[str, Any], new: Mapping[str, Any], resumes: int
    ) -> tuple[Job, bool]:
        """Queue an ended job again with a new spec and columns; return it, and True.

        Returns False with the job if an equal earlier call has queued it already.

        `new` has the columns that follow from the spec: `num_ranks`, and any of `name`, `priority`
        and `tags`. `resumes` is how many times the job had been resumed when the caller read it.
        Raises RowNotFound, WrongState if the job has not ended or was resumed by another call
        since, and QuotaExceeded.
        """
        with self.db.write() as connection:
            before = rows.found(connection, job_id, lock=True)
            if before.resumes == resumes + 1 and dict(spec) == _spec(connection, job_id).document:
                return before, False
            if before.phase is not Phase.FINAL or before.resumes != resumes:
                why, hint = (
                    ("the job was resumed since", "Look at it again, and resume it if necessary.")
                    if before.phase is Phase.FINAL
                    else (
                        "a job that has not ended cannot be resumed",
                        "Cancel it first, and wait until it has ended.",
                    )
                )
                where = {"job": job_id, "state": before.state, "resumes": before.resumes}
                raise WrongState(why, where=where, hint=hint)
            now_s = self.db.now_s(connection)
            job = _requeue(connection, before, {**new, "queued_at_s": now_s})
            connection.execute(
                update(_specs).where(_specs.c.job_id == job_id).values(document=dict(spec))
            )
            rows.write_events(connection, [(job, rows.STATE, None)], now_s)
            if job.tags != before.tags:
                put_tags(connection, job)
            _see_quota(connection, job)
        return job, True


def waiting() -> ColumnElement[bool]:
    """Return the SQL condition for jobs that count as queued: not ended, and without workers."""
    return and_(_jobs.c.finished_at_s.is_(None), _jobs.c.state.not_in(WITH_WORKERS))


def put_tags(connection: Connection, job: Job) -> None:
    table = tables.job_tags
    if job.rev > 1:
        connection.execute(delete(table).where(table.c.seq == job.seq))
    if job.tags:
        tags = [{"key": key, "value": value, "seq": job.seq} for key, value in job.tags.items()]
        connection.execute(_PUT_TAGS, tags)


def _put(
    connection: Connection, put_job: ReturningInsert[Any], job: Job, document: dict[str, Any]
) -> Job | None:
    """Write the rows of a new job, and return it; return `None` if an existing job has its id.

    Raises IdTaken if a deleted job had the id, RowNotFound and QuotaExceeded.
    """
    columns = {name: getattr(job, name) for name in _WRITTEN}
    columns |= {"phase": job.phase.value, "intent": job.intent.value}
    looked_up = {"of_project": job.project, "deleted_id": job.id}
    made = connection.execute(put_job, columns | looked_up).first()
    if made is None:
        return None
    if made.deleted is not None:
        raise _id_taken(job.id)  # its run folder may still exist
    quota = _quota_of(made, job.project)
    connection.execute(_PUT_SPEC, {"job_id": job.id, **document})
    job = dataclasses.replace(job, seq=made.seq, created_at_s=made.created_at_s)
    rows.write_events(connection, [(job, rows.STATE, None)], made.created_at_s)
    put_tags(connection, job)
    if quota.counts_queued:
        _see_quota(connection, job)
    return job


def _made(connection: Connection, job_id: str, owner: str, request_sha256: str) -> Job:
    """Return the job of an equal earlier request.

    Raises RowNotFound if there is no job with this id, and IdTaken if another request made it.
    """
    job = rows.found(connection, job_id)
    if job.owner != owner or _spec(connection, job_id).request_sha256 != request_sha256:
        raise _id_taken(job_id)
    return job


def _id_taken(job_id: str) -> IdTaken:
    return IdTaken(
        "another job has this id, or had it before it was deleted",
        where={"job": job_id},
        hint="A repeated request must have the same body; choose another id for another job.",
    )


def _spec(connection: Connection, job_id: str) -> Any:
    return connection.execute(select(_specs).where(_specs.c.job_id == job_id)).one()


def _count_up_to(*which: ColumnElement[bool]) -> Select[Any]:
    """Return the statement that counts a project's queued jobs, but at most `most` of them.

    The limit keeps the query fast for long queues.
    """
    of_project = _jobs.c.project == bindparam("of_project")
    some: Select[Any] = select(literal_column("1")).where(of_project, *which, waiting())
    return select(func.count()).select_from(some.limit(bindparam("most")).subquery())


_RANKS = select(func.coalesce(func.sum(_jobs.c.num_ranks), 0)).where(
    _jobs.c.project == bindparam("of_project"),
    _jobs.c.finished_at_s.is_(None),
    _jobs.c.phase != Phase.QUEUED.value,
)
_COUNT_ALL = _count_up_to()
_COUNT_OWN = _count_up_to(_jobs.c.owner == bindparam("of_owner"))
_MOST = 2**40


def _see_quota(connection: Connection, job: Job) -> None:
    """Lock the project's row, and check the project's quota of queued jobs.

    The job is written already, so the counts include it. The lock must be the last one of the
    transaction. Raises QuotaExceeded, and RowNotFound if there is no such project.
    """
    locked = connection.execute(_LOCK_PROJECT, {"of_project": job.project}).first()
    quota = _quota_of(locked, job.project)
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


def see_ranks(connection: Connection, job: Job) -> None:
    """Lock the project's row, and check the project's quota of ranks, if it has one.

    The job is written already, with a phase after `queued`, so the ranks include its own. The lock
    must be the last one of the transaction. Raises QuotaExceeded.
    """
    of = {"of_project": job.project}
    for read_quota in (_QUOTA, _LOCK_PROJECT):  # without a quota, nothing is locked
        limit = _quota_of(connection.execute(read_quota, of).first(), job.project).max_ranks
        if limit is None:
            return
    if connection.execute(_RANKS, of).scalar_one() > limit:
        raise QuotaExceeded("the project's ranks are in use", where={"project": job.project})


def _quota_of(row: Any, project: str) -> Quota:
    if row is None or row.quota is None:
        raise RowNotFound("no such project", where={"project": project})
    return stored_quota(row.quota)


def _requeue(connection: Connection, job: Job, new: Mapping[str, Any]) -> Job:
    again = {
        **new,
        "rev": job.rev + 1,
        "intent": Intent.RUN.value,
        "resumes": job.resumes + 1,
        "cancel_why": "",
        "cancel_grace_s": None,
        "phase": Phase.QUEUED.value,
        # A submission that ended before its first attempt has still used that number.
        "first_attempt": max(job.attempt + 1, job.first_attempt),
        "epoch": None,
        "scheduler_losses": 0,
        "state": "queued",
        "reason": None,
        "message": None,
        "why_pending": "",
        "observed_at_s": None,
        "started_at_s": None,
        "finished_at_s": None,
    }
    statement = update(_jobs).where(_jobs.c.id == job.id).values(again).returning(*_jobs.c)
    return rows.job_of(connection.execute(statement).one())
