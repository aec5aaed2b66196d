"""New jobs: each with its spec, tags, key and event in one transaction, within the quota.

On PostgreSQL all rows of a new job are one statement, one round trip instead of six; it is the
whole transaction where the project's quota counts nothing. The key's row comes first, and the other
rows are made from it. Where another request has the key, there is none, and nothing else is written
either.

Two requests with one key meet at the key's row: the second waits there until the first has ended,
and then reads its job. Two requests of one project meet at the project's row, locked last, so that
what the quota counts does not change until the transaction ends.
"""

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.sql.dml import ReturningInsert

from distrain.jobs.states import JobState
from distrain.service.store import rows, tables
from distrain.service.store.auditing import Deed, put_deed
from distrain.service.store.engine import POSTGRES_NOW, Database
from distrain.service.store.errors import NotNow, NotThere, quota_exceeded
from distrain.service.store.submitting.keys import (
    find_key,
    first_job,
    found,
    keys_in_flight,
    take_key,
)
from distrain.service.values import Intent, Job, NewJob, Phase, Quota, RequestKey

_TAKEN = "created_at_s"  # of the key's row, and with it of all others
_WRITTEN = [column.name for column in tables.jobs.c if column.name not in ("seq", _TAKEN)]


def put_all(
    connection: Connection, new: NewJob, key: RequestKey, deed: Deed | None, *, unless_counted: bool
) -> Job | None:
    """Write a job with its key, spec, tags, event and audit row; `None` if another has the key.

    With `unless_counted` also `None` where the project's quota counts jobs, or there is no project.
    """
    job = fresh(new, 0.0)
    given = written(job) | {
        "key_owner": key.owner,
        "key": key.key,
        "body_sha256": key.body_sha256,
        "spec": dict(new.spec),
        "event": rows.told(job, rows.STATE),
    }
    if deed is not None:
        given |= {f"deed_{name}": value for name, value in vars(deed).items()}
        given |= {"deed_details": dict(deed.details), "deed_target": deed.target[:256]}
    for name, value in given.items():
        if isinstance(value, dict):
            given[name] = json.dumps(value)
    statement = _statement(deed is not None, unless_counted)
    row = connection.exec_driver_sql(statement, given).first()
    return None if row is None else dataclasses.replace(job, seq=row.seq, created_at_s=row[1])


def fresh(new: NewJob, now_s: float) -> Job:
    fields = {f.name: getattr(new, f.name) for f in dataclasses.fields(new) if f.name != "spec"}
    return Job(seq=0, created_at_s=now_s, **fields | {"tags": dict(new.tags)})


def written(job: Job) -> dict[str, Any]:
    columns = {name: getattr(job, name) for name in _WRITTEN}
    columns |= {"phase": job.phase.value, "intent": job.intent.value, "progress": {}}
    return columns


@cache
def _statement(with_deed: bool, unless_counted: bool) -> str:
    """The statement's text for psycopg; SQLAlchemy would take long to look up one of this size."""
    taken = _take_key(unless_counted).cte("taken")
    at_s = taken.c[_TAKEN]
    job = _put(tables.jobs, _given(tables.jobs, _WRITTEN) | {_TAKEN: at_s}, taken)
    made = job.returning(tables.jobs.c.seq).cte("made")
    spec = {"job_id": _bound(tables.specs.c.job_id, "id")}
    spec["document"] = _bound(tables.specs.c.document, "spec")
    event = _given(tables.outbox, ["project", "owner"]) | {
        "job_id": _bound(tables.outbox.c.job_id, "id"),
        "kind": literal_column(f"'{rows.STATE}'"),
        "body": _bound(tables.outbox.c.body, "event"),
        "at_s": at_s,
    }
    tag = func.json_each_text(bindparam("tags", type_=JSON)).table_valued("key", "value")
    tags = {"key": tag.c.key, "value": tag.c.value, "seq": made.c.seq}
    others = [
        _put(tables.specs, spec, taken),
        _put(tables.outbox, event, taken),
        _put(tables.job_tags, tags, made.join(tag, true())),
    ]
    if with_deed:
        deed = [field.name for field in dataclasses.fields(Deed)]
        others.append(
            _put(tables.audit, _given(tables.audit, deed, "deed_") | {"at_s": at_s}, taken)
        )
    parts = [statement.cte(f"part_{n}") for n, statement in enumerate(others)]
    whole = select(made.c.seq, at_s).select_from(made.join(taken, true())).add_cte(*parts)
    return str(whole.compile(dialect=dialect()))  # type: ignore[no-untyped-call]


def _take_key(unless_counted: bool) -> ReturningInsert[Any]:
    keys, projects = tables.idempotency, tables.projects
    given: Mapping[str, ColumnElement[Any]] = {
        **_given(keys, ["key", "body_sha256"]),
        "owner": _bound(keys.c.owner, "key_owner"),
        "job_id": _bound(keys.c.job_id, "id"),
        _TAKEN: POSTGRES_NOW,
    }
    asked = select(*given.values())
    if unless_counted:
        asked = asked.where(projects.c.name == _bound(projects.c.name, "project"))
        for limit in ("max_queued", "max_queued_per_user"):
            given_limit = func.json_typeof(projects.c.quota[literal_column(f"'{limit}'")])
            asked = asked.where(given_limit == literal_column("'null'"))
    put = postgresql.insert(keys).from_select(list(given), asked)
    return put.on_conflict_do_nothing().returning(keys.c[_TAKEN])


def _put(
    table: Table, given: Mapping[str, ColumnElement[Any]], source: FromClause
) -> postgresql.Insert:
    asked = select(*given.values()).select_from(source)
    return postgresql.insert(table).from_select(list(given), asked)


def _given(table: Table, names: list[str], prefix: str = "") -> dict[str, ColumnElement[Any]]:
    return {name: _bound(table.c[name], prefix + name) for name in names}


def _bound(column: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    return bindparam(name, type_=column.type)


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
