"""A job's rows in one statement of PostgreSQL: the same rows, the same errors, each key once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from service_store import key_for, new_job
from sqlalchemy import select, text
from waiting import until

from distrain.service.store import tables as of
from distrain.service.store.auditing import Deed
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import open_store
from distrain.service.store.submitting.new_jobs import put_all
from distrain.service.values import Quota, RequestKey

pytestmark = pytest.mark.parametrize("store", ["postgres"], indirect=True)
either = pytest.mark.parametrize("is_counted", [False, True], ids=["uncounted", "counted"])

DEED = Deed("alice", "submit", "t" * 300, "ok", "token-1", {"project": "default"})
_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def _rows(store, table):
    """What a table has, but for numbers and times."""
    hidden = {"seq", "id", "job_id", "run_dir", "created_at_s", "at_s", "key"}
    with store.db.read() as connection:
        columns = [c for c in table.c if c.name not in hidden or table is of.job_tags]
        if table is of.job_tags:
            columns = [table.c.key, table.c.value]
        return [tuple(row) for row in connection.execute(select(*columns)).all()]


@either
def test_the_rows_are_those_of_a_statement_for_each_table(store, made, is_counted):
    tags = {"team": "ads", 'a "quoted" key': "ü, 'x' % {y}"}
    with open_store(made("sqlite")) as other:
        other.put_project("default", Quota(max_queued_per_user=None))
        for at in (store, other):
            new = new_job(tags=tags, priority=3, parent="p-1")
            job, is_new = at.submit(new, key_for(new), DEED, is_counted=is_counted)
            assert is_new
            assert at.job(new.id) == job
            assert at.spec(new.id) == new.spec
            assert at.jobs(JobFilter(tags=(("team", "ads"),)), 5) == [job]
            assert abs(job.created_at_s - at.now_s()) < 60
        for table in (of.jobs, of.specs, of.job_tags, of.outbox, of.idempotency, of.audit):
            ours, theirs = _rows(store, table), _rows(other, table)
            assert sorted(map(str, ours)) == sorted(map(str, theirs)), table.name
            assert ours, table.name


@either
@pytest.mark.parametrize("deed", [None, DEED], ids=["no deed", "deed"])
def test_two_requests_with_one_key_and_the_first_still_open(store, second, is_counted, deed):
    """The second waits for the first's end, and answers its job: no row of its own is left."""
    first, key = new_job(), RequestKey("alice", "the-same", "0" * 64)
    with ThreadPoolExecutor(1) as pool:
        with second.db.write() as connection:
            job = put_all(connection, first, key, deed, unless_counted=False)
            late = pool.submit(store.submit, new_job(), key, deed, is_counted=is_counted)
            _until_it_waits(second)
            assert not late.done()
        assert late.result(30) == (job, False)
    assert [found.id for found in store.jobs(JobFilter(), 5)] == [first.id]
    for table in (of.specs, of.outbox, of.idempotency):
        assert len(_rows(store, table)) == 1, table.name
    assert len(_rows(store, of.audit)) == (deed is not None)


@either
def test_the_second_makes_the_job_where_the_first_fails(store, second, is_counted):
    mine, key = new_job(), RequestKey("alice", "the-same", "0" * 64)
    with ThreadPoolExecutor(1) as pool:
        with suppress(ZeroDivisionError), second.db.write() as connection:
            put_all(connection, new_job(), key, None, unless_counted=False)
            late = pool.submit(store.submit, mine, key, is_counted=is_counted)
            _until_it_waits(second)
            raise ZeroDivisionError
        job, is_new = late.result(30)
    assert (job.id, is_new) == (mine.id, True)
    assert store.jobs(JobFilter(), 5) == [job]


def _until_it_waits(store):
    """Until a statement waits for another's lock; PostgreSQL ends what waits for 10 s."""

    def waits():
        with store.db.read() as connection:
            return connection.execute(_WAITS).scalar_one()

    until(waits)
