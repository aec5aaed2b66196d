"""Keys of requests: whose request came first, and its job."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError

from distrain.service.store import rows, tables
from distrain.service.store.engine import POSTGRES_NOW, SQLITE_NOW, Database
from distrain.service.store.errors import KeyInFlight, KeyReused, NotThere
from distrain.service.values import Job, RequestKey

_LOCK_NOT_AVAILABLE = "55P03"
_jobs = tables.jobs
_keys = tables.idempotency

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


def take_key(
    connection: Connection, key: RequestKey, job_id: str, db: Database
) -> tuple[Job | None, float]:
    """The job of an earlier request, `None` if the key is taken now; and the database's clock."""
    row = dataclasses.asdict(key) | {"job_id": job_id}
    with keys_in_flight():
        taken = connection.execute(_TAKE_KEY[connection.dialect.name], row).first()
    if taken is not None:
        return None, float(taken.created_at_s)
    return find_key(connection, key), db.now_s(connection)


@contextmanager
def keys_in_flight() -> Iterator[None]:
    """Raise KeyInFlight for a key whose first request holds it for too long."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise _in_flight() from error


def _in_flight() -> KeyInFlight:
    return KeyInFlight(
        "the first request with this key has not ended", hint="Send the same request again."
    )


def first_job(known: Job | None) -> Job:
    if known is None:  # it had it a moment ago; its row was pruned since
        raise _in_flight()
    return known


def find_key(connection: Connection, key: RequestKey) -> Job | None:
    """The job of the request with this key; raises KeyReused, NotThere."""
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


def found(connection: Connection, job_id: str, *, lock: bool = False) -> Job:
    row = connection.execute(_LOCK_JOB if lock else _FIND_JOB, {"job_id": job_id}).first()
    if row is None:
        raise no_such_job(job_id)
    return rows.job_of(row)


def no_such_job(job_id: str) -> NotThere:
    return NotThere(
        "no such job", where={"job": job_id}, hint="`distrain jobs` lists those that you may see."
    )
