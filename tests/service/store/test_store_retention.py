"""Old rows go, in bounded transactions, and nothing else does."""

from dataclasses import replace

import pytest
from service_store import SPEC, new_job, submitted
from sqlalchemy import event, func, insert, select, update

from distrain.service.settings import Retention
from distrain.service.store import tables
from distrain.service.store.errors import IdTaken
from distrain.service.store.people import Token
from distrain.service.store.retention import BATCH_ROWS, DAY_S
from distrain.service.values import Attempt, Change, Phase

KEEP = Retention()


def _age(store, column, days, where=None):
    statement = update(column.table).values({column: store.now_s() - days * DAY_S})
    with store.db.write() as connection:
        connection.execute(statement if where is None else statement.where(where))


def _count(store, table):
    with store.db.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _ended(store, **fields):
    job = submitted(store, **fields)
    _end(store, job.id)
    return job


def _end(store, job_id):
    attempts = [Attempt(job_id, number, "boot", 1.0) for number in (1, 2)]
    final = {"phase": Phase.FINAL, "state": "failed"}
    store.record("gpu", [Change(store.job(job_id), final, attempts)])


def test_jobs_go_with_all_that_is_theirs_but_for_their_ids(store):
    new = new_job(tags={"a": "b"})
    store.submit(new, SPEC)
    _end(store, new.id)
    old, recent = store.job(new.id), _ended(store)
    alive = submitted(store, tags={"a": "b"})
    _age(store, tables.jobs.c.finished_at_s, 181, tables.jobs.c.id == old.id)
    _age(store, tables.jobs.c.created_at_s, 400)
    assert store.prune(KEEP)["jobs"] == 1
    assert store.job(old.id) is None
    assert {job.id for job in (store.job(recent.id), store.job(alive.id))} == {recent.id, alive.id}
    counts = {t.name: _count(store, t) for t in (tables.specs, tables.attempts, tables.job_tags)}
    assert counts == {"specs": 3, "attempts": 2, "job_tags": 1}
    assert store.spec(old.id) == {}
    with pytest.raises(IdTaken):  # its run folder may still exist
        store.submit(new, SPEC)


def test_tokens_go_long_after_their_end_but_for_the_newest_of_a_user(store):
    now_s = store.now_s()
    old_s = now_s - 181 * DAY_S
    for number, (user, expires_at_s, revoked_at_s) in enumerate(
        [
            ("alice", old_s, None),
            ("alice", now_s + DAY_S, old_s),
            ("alice", now_s - DAY_S, now_s - DAY_S),
            ("alice", now_s + DAY_S, None),
            ("bob", old_s, None),
            ("bob", old_s, old_s),
        ]
    ):
        token = Token(
            f"t{number}", bytes([number]) * 32, user, "", frozenset(), number, expires_at_s
        )
        store.put_token(replace(token, revoked_at_s=revoked_at_s))
    assert store.prune(KEEP)["tokens"] == 3
    assert sorted(token.id for token in store.tokens()) == ["t2", "t3", "t5"]


def _put_events(store, num_old, num_recent):
    now_s = store.now_s()
    rows = [
        {
            "seq": number + 1,
            "job_id": f"job-{number % 50}",
            "project": "default",
            "owner": "alice",
            "kind": "job.state",
            "body": {"rev": number},
            "at_s": now_s - (8 * DAY_S if number < num_old else 0),
        }
        for number in range(num_old + num_recent)
    ]
    with store.db.write() as connection:
        connection.execute(insert(tables.events), rows)


def test_numbers_go_on_where_all_events_were_old(store):
    _put_events(store, 5, 0)
    assert store.prune(KEEP)["events"] == 4
    submitted(store)
    store.publish()
    assert [event.seq for event in store.events_after(0, 10)] == [5, 6]


def test_many_events_go_in_batches_oldest_first(store):
    num_old, num_recent = 3 * BATCH_ROWS + 500, 100
    _put_events(store, num_old, num_recent)
    deleted = []

    def note(connection, cursor, statement, parameters, context, executemany):
        if statement.lstrip().upper().startswith("DELETE FROM EVENTS"):
            deleted.append(cursor.rowcount)

    event.listen(store.db.engine, "after_cursor_execute", note)
    try:
        assert store.prune(KEEP)["events"] == num_old
    finally:
        event.remove(store.db.engine, "after_cursor_execute", note)
    assert deleted == [BATCH_ROWS] * 3 + [500]
    assert (store.first_seq(), store.last_seq()) == (num_old + 1, num_old + num_recent)


def test_it_stops_between_batches(store):
    _put_events(store, 3 * BATCH_ROWS, 1)
    # Asked before each transaction: one of jobs, then of events.
    answers = iter([False, False, True, True, True])
    gone = store.prune(KEEP, must_stop=lambda: next(answers))
    assert gone["events"] == BATCH_ROWS
    assert store.first_seq() == BATCH_ROWS + 1
