"""Converts jobs between rows and values, and writes the events of their changes."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from distrain.service.store import tables
from distrain.service.store.errors import RowNotFound
from distrain.service.values import Intent, Job, Phase

STATE = "job.state"
PROGRESS = "job.progress"
DELETED = "job.deleted"

# columns of an event without its time
OUTBOX_COLUMNS = ("job_id", "project", "owner", "kind", "body")
_TELL = insert(tables.outbox).inline()  # no caller uses the ids of new rows
_FIND_JOB = select(tables.jobs).where(tables.jobs.c.id == bindparam("job_id"))
_LOCK_JOB = _FIND_JOB.with_for_update()
_SHOWN = (
    "rev",
    "name",
    "cluster",
    "phase",
    "intent",
    "state",
    "attempt",
    "first_attempt",
    "resumes",
    "reason",
    "message",
    "why_pending",
    "priority",
    "observed_at_s",
    "started_at_s",
    "finished_at_s",
)


def job_of(row: Row[Any] | Mapping[str, Any]) -> Job:
    fields = dict(row._mapping if isinstance(row, Row) else row)
    fields["intent"] = Intent(fields["intent"])
    fields["phase"] = Phase(fields["phase"])
    return Job(**fields)


def found(connection: Connection, job_id: str, *, lock: bool = False) -> Job:
    """Return a job from the database; raises RowNotFound.

    With `lock`, its row stays locked until the transaction ends.
    """
    row = connection.execute(_LOCK_JOB if lock else _FIND_JOB, {"job_id": job_id}).first()
    if row is None:
        raise no_such_job(job_id)
    return job_of(row)


def no_such_job(job_id: str) -> RowNotFound:
    return RowNotFound(
        "no such job", where={"job": job_id}, hint="`distrain jobs` lists those that you may see."
    )


def outbox_columns(job: Job, kind: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a row of the table `outbox` for a job's event, by column.

    By default, the event's body has the columns `_SHOWN` of the job, and its metrics if the kind is
    `PROGRESS`.
    """
    if body is None:
        body = {name: getattr(job, name) for name in _SHOWN}
        if kind == PROGRESS:
            body["progress"] = dict(job.progress)
    return dict(
        zip(OUTBOX_COLUMNS, (job.id, job.project, job.owner, kind, dict(body)), strict=True)
    )


def write_events(
    connection: Connection, jobs: Iterable[tuple[Job, str, Mapping[str, Any] | None]], now_s: float
) -> None:
    """Write events, given as (job, kind, body), to the outbox, in the transaction of the changes.

    If a body is `None`, it is the default of `outbox_columns`.
    """
    rows = [outbox_columns(job, kind, body) | {"at_s": now_s} for job, kind, body in jobs]
    if rows:
        connection.execute(_TELL, rows)
