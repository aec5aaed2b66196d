"""Jobs that come in, once each, within the quota."""

import pytest
from service_store import key_for, new_job, submitted

from distrain.service.store.errors import KeyReused, NotThere, QuotaExceeded
from distrain.service.values import Intent, Job, Phase, Quota, RequestKey


def test_a_job_is_read_back_as_it_was_put(store):
    new = new_job(tags={"team": "ads"}, priority=3)
    job, created = store.submit(new, key_for(new))
    assert created
    assert store.job(new.id) == job
    assert store.spec(new.id) == new.spec
    assert (job.phase, job.intent, job.state, job.rev) == (Phase.QUEUED, Intent.RUN, "queued", 1)
    assert abs(job.created_at_s - store.now_s()) < 60
    assert isinstance(job, Job)


def test_a_key_of_another_body_is_refused_and_another_users_is_not(store):
    new = new_job()
    store.submit(new, RequestKey("alice", "k", "a" * 64))
    with pytest.raises(KeyReused):
        store.submit(new_job(), RequestKey("alice", "k", "b" * 64))
    with pytest.raises(KeyReused):
        store.find_key(RequestKey("alice", "k", "b" * 64))
    _, created = store.submit(new_job(owner="bob"), RequestKey("bob", "k", "b" * 64))
    assert created


@pytest.mark.parametrize("limit", ["max_queued", "max_queued_per_user"])
def test_what_a_quota_refuses_leaves_nothing_behind(store, limit):
    store.put_project("small", Quota(**{"max_queued_per_user": None, limit: 1}))
    submitted(store, project="small")
    new = new_job(project="small")
    with pytest.raises(QuotaExceeded) as caught:
        store.submit(new, key_for(new))
    assert caught.value.where["quota"] == f"{limit}: 1"
    assert store.job(new.id) is None
    assert store.find_key(key_for(new)) is None
    if limit == "max_queued_per_user":
        submitted(store, project="small", owner="bob")  # it leaves space to others


def test_a_project_must_exist(store):
    new = new_job(project="nobodys")
    with pytest.raises(NotThere):
        store.submit(new, key_for(new))
