"""Threads that write at once share a transaction; what one of them does wrong is its own."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from service_store import SPEC, new_job
from sqlalchemy import create_engine, event, text
from waiting import until

from distrain.service.store.auditing import AuditEntry
from distrain.service.store.engine import GroupCommit
from distrain.service.store.errors import NotNow, QuotaExceeded
from distrain.service.values import Quota


class Table:
    """A table of numbers, to which threads write together as soon as all have come."""

    def __init__(self, path):
        self.engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 60})
        event.listen(self.engine, "connect", lambda c, record: setattr(c, "isolation_level", None))
        event.listen(self.engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)"))
        self.num_transactions, self.all_came = 0, threading.Event()
        self.fails = None
        self.together = GroupCommit(self.write)

    @contextmanager
    def write(self):
        assert self.all_came.wait(120)
        with self.engine.begin() as connection:
            self.num_transactions += 1
            yield connection
            if self.fails is not None:
                raise self.fails

    def put_all(self, *works):
        def run(work):
            try:
                return self.together.run(work)
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(works)) as pool:
            found = [pool.submit(run, work) for work in works]
            until(lambda: len(self.together._waiting) >= len(works))
            self.all_came.set()
            return [one.result() for one in found]

    def numbers(self):
        with self.engine.begin() as connection:
            return sorted(connection.execute(text("SELECT n FROM numbers")).scalars())


@pytest.fixture
def table(tmp_path):
    made = Table(tmp_path / "numbers.db")
    yield made
    made.engine.dispose()


def _put(number, then=None):
    def work(connection):
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
        if then is not None:
            raise then
        return number

    return work


def test_a_refusal_undoes_its_own_work_alone(table):
    refusal = NotNow("no")
    answers = table.put_all(_put(1), _put(2, refusal), _put(3))
    assert answers == [1, refusal, 3]
    assert (table.numbers(), table.num_transactions) == ([1, 3], 1)


def test_an_error_of_the_database_leaves_the_others_their_work(table):
    first, second, third = table.put_all(_put(1), _put(1), _put(3))
    assert {type(first).__name__, type(second).__name__} == {"int", "IntegrityError"}
    assert third == 3
    assert table.numbers() == [1, 3]


def test_a_commit_that_fails_fails_for_all(table):
    table.fails = OSError("the disk is full")
    assert table.put_all(_put(1), _put(2)) == [table.fails] * 2
    assert table.numbers() == []
    table.fails = None
    assert table.together.run(_put(3)) == 3  # whoever comes later finds all in order


def test_the_audit_row_stands_and_falls_with_its_job(store):
    store.put_project("small", Quota(max_queued=1))
    new, beyond = new_job(project="small"), new_job(project="small")

    def audit_entry(job):
        return AuditEntry("alice", "submit", job.id, "ok", "abc", {"project": "small"})

    store.submit(new, SPEC, audit_entry=audit_entry(new))
    assert store.submit(new, SPEC, audit_entry=audit_entry(new))[1] is False
    with pytest.raises(QuotaExceeded):
        store.submit(beyond, SPEC, audit_entry=audit_entry(beyond))
    (row,) = store.audit_rows(None, 10)
    assert (row.user, row.action, row.target, row.token_id) == ("alice", "submit", new.id, "abc")
    assert (row.outcome, row.details) == ("ok", {"project": "small"})
