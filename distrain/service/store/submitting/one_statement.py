"""All rows of a new job in one statement of PostgreSQL: one round trip instead of six.

The key's row comes first, and the other rows are made from it. Where another request has the key,
there is none, and nothing else is written either. A second request with the key waits at the row
until the first has ended, as with statements of their own.
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
    Table,
    bindparam,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.sql.dml import ReturningInsert

from distrain.service.store import rows, tables
from distrain.service.store.auditing import Deed
from distrain.service.store.engine import POSTGRES_NOW
from distrain.service.values import Job, NewJob, RequestKey

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
    put = insert(keys).from_select(list(given), asked)
    return put.on_conflict_do_nothing().returning(keys.c[_TAKEN])


def _put(table: Table, given: Mapping[str, ColumnElement[Any]], source: FromClause) -> Insert:
    asked = select(*given.values()).select_from(source)
    return insert(table).from_select(list(given), asked)


def _given(table: Table, names: list[str], prefix: str = "") -> dict[str, ColumnElement[Any]]:
    return {name: _bound(table.c[name], prefix + name) for name in names}


def _bound(column: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    return bindparam(name, type_=column.type)
