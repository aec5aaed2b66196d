"""The writes of reconcilers: jobs (if their revision is unchanged), attempts and clusters."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, or_, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from distrain.service.store import rows, tables
from distrain.service.store.engine import AnyRow, Database
from distrain.service.store.errors import QuotaExceeded
from distrain.service.store.submitting import see_ranks
from distrain.service.values import Attempt, Change, Intent, Job, Phase

_jobs = tables.jobs
_SILENT = {"observed_at_s", "epoch"}
_IDS_AT_ONCE = 500


class Recording:
    db: Database

    def alive(self, cluster: str, known: Mapping[str, Job] | None = None) -> list[Job]:
        """Return a cluster's jobs that have not ended, in the order of `seq`.

        Jobs in `known`, by id, are not read again if their revision is unchanged.
        """
        with self.db.read() as connection:
            if not known:
                return [
                    rows.job_of(row)
                    for row in connection.execute(_alive(_jobs), {"_cluster": cluster})
                ]
            found = connection.execute(_alive(_jobs.c.id, _jobs.c.rev), {"_cluster": cluster}).all()
            jobs = {
                job_id: known[job_id]
                for job_id, rev in found
                if job_id in known and known[job_id].rev == rev
            }
            changed = [job_id for job_id, _ in found if job_id not in jobs]
            for first in range(0, len(changed), _IDS_AT_ONCE):
                some = connection.execute(
                    _ALIVE_AMONG, {"_ids": changed[first : first + _IDS_AT_ONCE]}
                )
                jobs |= {row.id: rows.job_of(row) for row in some}
        return [jobs[job_id] for job_id, _ in found if job_id in jobs]

    def record(
        self, cluster: str, changes: Iterable[Change], known: dict[str, Job] | None = None
    ) -> list[Change]:
        """Write changes of a cluster's jobs in one transaction.

        Returns the changes that were skipped, because their job has another revision or is gone.
        All are skipped if one of them begins to hand over a job beyond its project's quota of
        ranks, as other clusters may have got these ranks meanwhile. Jobs that were written are put
        into `known`, by id.
        """
        in_order = sorted(changes, key=lambda change: change.job.id)
        skipped, told = list[Change](), list[tuple[Job, str, Mapping[str, Any] | None]]()
        try:
            with self.db.write() as connection:
                now_s = self.db.now_s(connection)
                for change in in_order:
                    job = _apply(connection, cluster, change, now_s)
                    if job is None:
                        skipped.append(change)
                        continue
                    if job.phase is Phase.HANDING_OVER and change.job.phase is Phase.QUEUED:
                        see_ranks(connection, job)
                    self._put_attempts(connection, change.attempts)
                    changed = change.columns.keys() - _SILENT
                    of_figures = changed == {"progress"} and not change.attempts
                    told.append((job, rows.PROGRESS if of_figures else rows.STATE, None))
                rows.write_events(connection, told, now_s)
        except QuotaExceeded:
            return in_order
        if known is not None:
            known.update({job.id: job for job, _, _ in told})
        return skipped

    def marks(self) -> dict[str, tuple[int, int]]:
        """Return two numbers for each cluster; if they change, the cluster needs a pass at once.

        They are the highest `seq` and the sum of `rev` of the cluster's queued jobs and of its jobs
        being cancelled. So they change when a job is submitted, resumed or cancelled, or a queued
        job is changed. Clusters without such jobs are omitted.
        """
        undone = or_(_jobs.c.phase == Phase.QUEUED.value, _jobs.c.intent == Intent.CANCEL.value)
        statement = (
            select(_jobs.c.cluster, func.max(_jobs.c.seq), func.sum(_jobs.c.rev))
            .where(_jobs.c.finished_at_s.is_(None), undone)
            .group_by(_jobs.c.cluster)
        )
        return {row[0]: (int(row[1]), int(row[2])) for row in self.db.all(statement)}

    def put_cluster(
        self, cluster: str, state: Mapping[str, Any], observed_at_s: float | None = None
    ) -> None:
        """Write a reconciler's report of a cluster, with the current time.

        `observed_at_s` is the time of the scheduler's last answer; `None` leaves it unchanged.
        """
        with self.db.write() as connection:
            values: dict[str, Any] = {"state": {**state, "at_s": self.db.now_s(connection)}}
            if observed_at_s is not None:
                values["observed_at_s"] = observed_at_s
            new = self.db.insert(tables.clusters).values(name=cluster, **values)
            connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))

    def report_ages_s(self) -> dict[str, float]:
        """Return the seconds since a reconciler last wrote each cluster's state, by cluster."""
        now_s = self.db.clock_s()
        return {row.name: max(0.0, now_s - row.state.get("at_s", 0.0)) for row in self.clusters()}

    def clusters(self) -> Sequence[AnyRow]:
        """Return the reconcilers' last reports: `name`, `state` as JSON values, `observed_at_s`."""
        return self.db.all(select(tables.clusters).order_by(tables.clusters.c.name))

    def _put_attempts(self, connection: Connection, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            new = self.db.insert(tables.attempts).values(dataclasses.asdict(attempt))
            known, given = tables.attempts.c, new.excluded
            # An existing row keeps its start, and its end if it has one.
            first = {n: func.coalesce(known[n], given[n]) for n in ("ended_at_s", *_OF_ENDS)}
            values = {"step": func.coalesce(given.step, known.step), "epoch": given.epoch, **first}
            connection.execute(
                new.on_conflict_do_update(index_elements=["job_id", "attempt"], set_=values)
            )


_OF_ENDS = ("reason", "message", "ranks", "gpus")


@lru_cache(maxsize=4)
def _alive(*columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .where(_jobs.c.cluster == bindparam("_cluster"), _jobs.c.finished_at_s.is_(None))
        .order_by(_jobs.c.seq)
    )


_ALIVE_AMONG = select(_jobs).where(
    _jobs.c.id.in_(bindparam("_ids", expanding=True)), _jobs.c.finished_at_s.is_(None)
)


def _apply(connection: Connection, cluster: str, change: Change, now_s: float) -> Job | None:
    columns = {name: _plain(value) for name, value in change.columns.items()}
    if columns.get("phase") == Phase.FINAL.value:
        columns.setdefault("finished_at_s", now_s)
    columns["rev"] = change.job.rev + 1
    which = {"_id": change.job.id, "_rev": change.job.rev, "_cluster": cluster}
    row = connection.execute(_update(frozenset(columns)), columns | which).first()
    return None if row is None else rows.job_of(row)


@lru_cache(maxsize=256)
def _update(columns: frozenset[str]) -> ReturningUpdate[Any]:
    """Return the statement that updates these columns of a job, if its revision is unchanged.

    It is cached, since building it takes longer than running it.
    """
    statement = update(_jobs).where(
        _jobs.c.id == bindparam("_id"),
        _jobs.c.rev == bindparam("_rev"),
        _jobs.c.cluster == bindparam("_cluster"),
    )
    return statement.values({name: bindparam(name) for name in columns}).returning(*_jobs.c)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return dict(value) if isinstance(value, Mapping) else value
