"""One process has a lease, and one that had it writes nothing any more."""

import pytest
from service_store import submitted

from distrain.service.store.errors import LeaseLost
from distrain.service.store.reconciler_writes import JobChange


def _take(store, owner, ttl_s=15.0):
    return store.take_lease("cluster:gpu", owner, ttl_s)


def test_one_of_two_has_it(store, second):
    mine = _take(store, "one")
    assert mine.generation == 1
    assert _take(second, "two") is None
    assert _take(store, "one").generation == 1  # the answer to its first call was lost, say
    assert second.take_lease("cluster:other", "two").generation == 1


def test_what_ran_out_goes_to_another_under_the_next_generation(store, second):
    _take(store, "one", ttl_s=0)
    theirs = _take(second, "two")
    assert (theirs.owner, theirs.generation) == ("two", 2)
    assert _take(store, "one") is None
    store.release(theirs)
    assert _take(store, "one").generation == 3, "the same owner after another is another"


def test_a_lease_of_before_the_clock_was_put_back_is_free(store, second):
    mine = _take(store, "one", ttl_s=3600.0)  # an hour ahead of the clock as it is now
    theirs = _take(second, "two")
    assert (theirs.owner, theirs.generation) == ("two", mine.generation + 1)
    assert store.renew([mine]) == []


def test_many_are_renewed_at_once_but_for_those_that_are_lost(store, second):
    lost, kept = _take(store, "one", ttl_s=0), store.take_lease("publisher", "one", ttl_s=1.0)
    _take(second, "two")
    [renewed] = store.renew([lost, kept])
    assert (renewed.name, renewed.generation) == ("publisher", 1)
    assert renewed.expires_at_s > kept.expires_at_s
    assert store.renew([]) == []


def test_a_lease_of_an_owner_that_has_ended_is_free(store, second):
    _take(store, "one")
    assert _take(second, "two") is None
    assert second.take_lease("cluster:gpu", "two", ended="another") is None
    assert second.take_lease("cluster:gpu", "two", ended="one").generation == 2
    assert store.lease_owner("cluster:gpu") == "two"


def test_a_released_lease_is_free(store, second):
    mine = _take(store, "one")
    store.release(mine)
    assert store.renew([mine]) == []  # as by a thread that had read it just before
    assert _take(second, "two").generation == 2


def test_an_old_owner_writes_nothing(store, second):
    job = submitted(store)
    old = _take(store, "one", ttl_s=0)
    new = _take(second, "two")
    change = JobChange(job.id, job.rev, {"state": "running"})
    writes = [
        lambda: store.record(old, [change]),
        lambda: store.put_cluster(old, {"state": "up"}, 1.0),
    ]
    for write in writes:
        with pytest.raises(LeaseLost):
            write()
    assert store.renew([old]) == []
    assert store.job(job.id) == job
    assert store.clusters() == []
    store.release(old)
    assert _take(store, "one") is None
    assert second.record(new, [change]) == []


def test_the_publisher_is_fenced_too(store, second):
    submitted(store)
    old = store.take_lease("publisher", "one", ttl_s=0)
    new = second.take_lease("publisher", "two")
    with pytest.raises(LeaseLost):
        store.publish(old)
    assert store.last_seq() == 0
    assert second.publish(new) == 1
