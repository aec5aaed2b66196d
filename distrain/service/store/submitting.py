"""Jobs that come in: each with its spec, tags, key and event in one transaction, within the quota.

Two requests with one key meet at the key's row, which is written first: the second waits there
until the first has ended, and then finds its job. Two requests of one project meet at the project's
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
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError

from distrain.jobs import JobState
from distrain.service.store import rows, tables
from distrain.service.store.auditing import Deed, put_deed
from distrain.service.store.engine import POSTGRES_NOW, SQLITE_NOW, Database
from distrain.service.store.errors import (
    KeyInFlight,
    KeyReused,
    NotNow,
    NotThere,
    quota_exceeded,
)
from distrain.service.values import Intent, Job, Key, NewJob, Phase, Quota

WITH_WORKERS = tuple(
    state.value for state in JobState if state.holds_workers or state is JobState.RESTARTING
)
_LOCK_NOT_AVAILABLE = "55P03"
_jobs = tables.jobs
_keys = tables.idempotency

# Statements of each submission, made once: SQLAlchemy takes longer to make one than to run it.
_FIND_KEY = select(_keys.c.body_sha256, _keys.c.job_id).where(
    _keys.c.owner == bindparam("of_owner"), _keys.c.key == bindparam("of_key")
)
_TAKE_KEY = {
    "postgresql": postgres_insert(_keys)
    .values(created_at_s=POSTGRES_NOW)
    .on_conflict_do_nothing()
    .returning(_keys.c.created_at_s),
    "sqlite": sqlite_insert(_keys)
    .values(created_at_s=SQLITE_NOW)
    .on_conflict_do_nothing()
    .returning(_keys.c.created_at_s),
}
_FIND_JOB = select(_jobs).where(_jobs.c.id == bindparam("job_id"))
_LOCK_JOB = _FIND_JOB.with_for_update()
_QUOTA = select(tables.projects.c.quota).where(tables.projects.c.name == bindparam("project"))
_LOCK_PROJECT = _QUOTA.with_for_update()
_PUT_JOB = insert(_jobs).returning(_jobs.c.seq)
_PUT_SPEC = insert(tables.specs)
_PUT_TAGS = insert(tables.job_tags)


class Submitting:
    """The part of `Store` that takes jobs."""

    db: Database

    def submit(self, new: NewJob, key: Key, deed: Deed | None = None) -> tuple[Job, bool]:
        """Take a job, or find the one that the same request made before.

        Args:
            new: The job.
            key: Of the request.
            deed: The audit row that is written if the job is new.

        Returns:
            The job, and whether it is new.

        Raises:
            NotThere: The project, or the key's job, does not exist (any more).
            KeyReused: The key came with another body.
            KeyInFlight: The key's first request has not ended.
            QuotaExceeded: The project has too many waiting jobs.
        """

        def work(connection: Connection) -> tuple[Job, bool]:
            known, now_s = _take_key(connection, key, new.id, self.db)
            if known is not None:
                return known, False
            job = _insert(connection, new, now_s)
            rows.tell(connection, [(job, rows.STATE, None)], now_s)
            if deed is not None:
                put_deed(connection, deed, now_s)
            _see_quota(connection, job)
            return job, True

        return self.db.together(work)

    def find_key(self, key: Key) -> Job | None:
        """The job that a request with this key made; `None` if there was none.

        Raises:
            NotThere: The job was deleted.
            KeyReused: The key came with another body.
        """
        with self.db.read() as connection:
            return _find_key(connection, key)

    def resume(
        self,
        job_id: str,
        spec: Mapping[str, Any],
        num_ranks: int,
        key: Key,
        deed: Deed | None = None,
    ) -> tuple[Job, bool]:
        """Bring a job that has ended back into the queue, with a spec that replaces its own.

        `deed` is the audit row that is written if this call resumes it.

        Returns:
            The job, and whether this call resumed it, not an earlier one with the same key.

        Raises:
            NotThere: No such job.
            NotNow: It has not ended.
            KeyReused: The key came with another body.
            KeyInFlight: The key's first request has not ended.
            QuotaExceeded: The project has too many waiting jobs.
        """
        with self.db.write() as connection:
            known, now_s = _take_key(connection, key, job_id, self.db)
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


def found(connection: Connection, job_id: str, *, lock: bool = False) -> Job:
    """A job that must exist.

    Raises:
        NotThere: It does not.
    """
    row = connection.execute(_LOCK_JOB if lock else _FIND_JOB, {"job_id": job_id}).first()
    if row is None:
        raise no_such_job(job_id)
    return rows.job_of(row)


def no_such_job(job_id: str) -> NotThere:
    """Make the error."""
    return NotThere(
        "no such job", where={"job": job_id}, hint="`distrain jobs` lists those that you may see."
    )


def waiting() -> ColumnElement[bool]:
    """Jobs that have not ended and hold no workers, as quotas count them."""
    return and_(_jobs.c.finished_at_s.is_(None), _jobs.c.state.not_in(WITH_WORKERS))


_COUNT_WAITING = select(
    func.count().label("all"),
    func.count().filter(_jobs.c.owner == bindparam("of_owner")).label("own"),
).where(_jobs.c.project == bindparam("of_project"), waiting())


def _take_key(
    connection: Connection, key: Key, job_id: str, db: Database
) -> tuple[Job | None, float]:
    """The job that the key has made, or `None` where it is taken now; and the database's clock.

    The clock comes with the key's row: each statement of a submission is a round trip.
    """
    row = dataclasses.asdict(key) | {"job_id": job_id}
    try:
        taken = connection.execute(_TAKE_KEY[connection.dialect.name], row).first()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise KeyInFlight(
            "the first request with this key has not ended", hint="Send the same request again."
        ) from error
    if taken is not None:
        return None, float(taken.created_at_s)
    return _find_key(connection, key), db.now_s(connection)


def _find_key(connection: Connection, key: Key) -> Job | None:
    row = connection.execute(_FIND_KEY, {"of_owner": key.owner, "of_key": key.key}).first()
    if row is None:
        return None
    if row.body_sha256 != key.body_sha256:
        raise KeyReused(
            "the idempotency key came before, with another request",
            where={"job of that request": row.job_id},
            hint="Take a new key for a new request.",
        )
    return found(connection, row.job_id)


def _see_quota(connection: Connection, job: Job) -> None:
    """Lock the project, and see that its quota allows a job that is in the queue already.

    This comes last in its transaction, so that requests wait for each other as shortly as can be;
    they do not where there is nothing to count.
    """
    if not _counts(_quota(connection, _QUOTA, job.project)):
        return
    quota = _quota(connection, _LOCK_PROJECT, job.project)  # perhaps another by now
    if not _counts(quota):
        return
    own = quota.max_queued_per_user
    of = {"of_project": job.project, "of_owner": job.owner}
    counts = connection.execute(_COUNT_WAITING, of).one()
    if quota.max_queued is not None and counts.all > quota.max_queued:
        raise quota_exceeded("max_queued", quota.max_queued, job.project)
    if own is not None and counts.own > own:
        raise quota_exceeded("max_queued_per_user", own, job.project)


def _quota(connection: Connection, statement: Select[Any], project: str) -> Quota:
    row = connection.execute(statement, {"project": project}).first()
    if row is None:
        raise NotThere("no such project", where={"project": project})
    return Quota(**row.quota)


def _counts(quota: Quota) -> bool:
    return quota.max_queued is not None or quota.max_queued_per_user is not None


def _insert(connection: Connection, new: NewJob, now_s: float) -> Job:
    fields = {f.name: getattr(new, f.name) for f in dataclasses.fields(new) if f.name != "spec"}
    fields["tags"] = dict(new.tags)
    job = Job(seq=0, created_at_s=now_s, **fields)
    columns = {f.name: getattr(job, f.name) for f in dataclasses.fields(job) if f.name != "seq"}
    columns |= {"phase": job.phase.value, "intent": job.intent.value}
    columns["progress"] = {}
    job = dataclasses.replace(job, seq=connection.execute(_PUT_JOB, columns).scalar_one())
    connection.execute(_PUT_SPEC, {"job_id": new.id, "document": dict(new.spec)})
    put_tags(connection, job)
    return job


def put_tags(connection: Connection, job: Job) -> None:
    """Make the rows of a job's tags what the job says."""
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
