"""Deletes old rows, a limited number per transaction."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, exists, func, or_, select

from distrain.service.settings import Retention
from distrain.service.store import tables
from distrain.service.store.engine import Database
from distrain.service.store.job_changes import forget

DAY_S = 86400.0
BATCH_ROWS = 1000
BATCH_JOBS = 100  # each with its spec, attempts and tags
_events, _jobs, _tokens = tables.events, tables.jobs, tables.tokens


class Pruning:
    db: Database

    def prune(
        self, retention: Retention, *, must_stop: Callable[[], bool] = lambda: False
    ) -> dict[str, int]:
        """Delete expired rows in short transactions; return the number of rows by table.

        Events are deleted oldest first, so that the numbers of the remaining events have no gaps.
        The newest event is kept, since the next event's number is derived from it, and the newest
        token of each user, since the first start makes one for an admin without any. Tokens are
        kept as long as jobs, from their end on. A retention of 0 days keeps rows forever. Once
        `must_stop` returns True, the other rows are left to the next call.
        """
        steps: list[tuple[str, float, Callable[[Connection, float], int], int]] = [
            ("jobs", retention.jobs_days, _prune_jobs, BATCH_JOBS),
            ("events", retention.events_days, _prune_events, BATCH_ROWS),
            ("tokens", retention.jobs_days, _prune_tokens, BATCH_ROWS),
        ]
        gone = {name: 0 for name, *_ in steps}
        for name, days, step, full in steps:
            while days and not must_stop():
                with self.db.write() as connection:
                    before_s = self.db.now_s(connection) - days * DAY_S
                    num_rows = step(connection, before_s)
                gone[name] += num_rows
                if num_rows < full:
                    break
        return gone


def _prune_jobs(connection: Connection, before_s: float) -> int:
    old = connection.execute(
        select(_jobs.c.id, _jobs.c.seq)
        .where(_jobs.c.finished_at_s < before_s)
        .order_by(_jobs.c.finished_at_s)
        .limit(BATCH_JOBS)
        .with_for_update(skip_locked=True)
    ).all()
    if old:
        forget(connection, [row.id for row in old], [row.seq for row in old])
    return len(old)


def _prune_events(connection: Connection, before_s: float) -> int:
    last = connection.execute(select(func.max(_events.c.seq))).scalar_one() or 0
    oldest = connection.execute(
        select(_events.c.seq, _events.c.at_s).order_by(_events.c.seq).limit(BATCH_ROWS)
    ).all()
    bound = 0
    for row in oldest:
        if row.at_s >= before_s or row.seq == last:
            break
        bound = row.seq
    return connection.execute(delete(_events).where(_events.c.seq <= bound)).rowcount


def _prune_tokens(connection: Connection, before_s: float) -> int:
    newer = _tokens.alias()
    has_newer = exists().where(
        newer.c.user == _tokens.c.user, newer.c.created_at_s > _tokens.c.created_at_s
    )
    ended = or_(_tokens.c.revoked_at_s < before_s, _tokens.c.expires_at_s < before_s)
    old = select(_tokens.c.id).where(ended, has_newer).limit(BATCH_ROWS)
    return connection.execute(delete(_tokens).where(_tokens.c.id.in_(old))).rowcount
