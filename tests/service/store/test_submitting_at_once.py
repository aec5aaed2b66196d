"""Many requests at the same moment: each job once, and never more than the quota."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from service_store import SPEC, new_job, submitted
from sqlalchemy import update

from distrain.service.store import tables
from distrain.service.store.errors import QuotaExceeded, WrongState
from distrain.service.store.listing import JobFilter
from distrain.service.values import Phase, Quota


def _at_once(act, inputs):
    """What an action gives for each input, all begun at one moment, or the error."""
    barrier = threading.Barrier(len(inputs))

    def run(given):
        barrier.wait()
        try:
            return act(given)
        except QuotaExceeded as error:
            return error

    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(run, inputs))


def test_a_quota_of_ten_lets_ten_of_fifty_in(store, second):
    store.put_project("small", Quota(max_queued=10))
    inputs = [(at, new_job(project="small")) for at in (store, second) for _ in range(25)]
    answers = _at_once(lambda pair: pair[0].submit(pair[1], SPEC), inputs)
    refused = [answer for answer in answers if isinstance(answer, QuotaExceeded)]
    assert len(refused) == 40
    assert store.usage("small") == {"ranks": 0, "queued": 10}
    assert len(store.jobs(JobFilter(project="small"), limit=100)) == 10


@pytest.mark.parametrize("limit", [None, 5], ids=["uncounted", "counted"])
def test_one_id_makes_one_job(store, second, limit):
    store.put_project("default", Quota(max_queued_per_user=limit))
    new = new_job(tags={"team": "ads"})
    answers = _at_once(lambda at: at.submit(new, SPEC), [store, second] * 10)
    assert len({job.seq for job, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    assert len(store.jobs(JobFilter(), limit=100)) == 1


def _ended(store):
    job = submitted(store)
    store.cancel(job.id, "", None, "alice")
    return store.job(job.id)


def test_a_job_is_resumed_once(store, second):
    job = _ended(store)
    with store.db.write() as connection:
        connection.execute(update(tables.jobs).values(created_at_s=5.0))
    spec = {"train": {"epochs": 3}}
    answers = _at_once(lambda at: at.resume(job.id, spec, {"num_ranks": 4}, 0), [store, second] * 5)
    assert [resumed for _, resumed in answers].count(True) == 1
    again = store.job(job.id)
    assert (again.resumes, again.phase, again.num_ranks) == (1, Phase.QUEUED, 4)
    assert (again.finished_at_s, again.message, again.cancel_why) == (None, None, "")
    assert store.spec(job.id) == spec
    assert store.attempts(job.id) == []
    assert store.longest_queued_s() < 60, "it waits since the resume"
    with pytest.raises(WrongState):
        store.resume(job.id, {"train": {"epochs": 4}}, {"num_ranks": 4}, 0)


def test_a_resumed_job_counts_in_the_quota(store):
    job = _ended(store)
    store.put_project("default", Quota(max_queued=0))
    with pytest.raises(QuotaExceeded):
        store.resume(job.id, {}, {"num_ranks": 1}, 0)
