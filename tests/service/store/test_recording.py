"""What reconcilers write: whole, and only on what they have seen."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from service_store import new_job, submitted

from distrain.service.values import Attempt, Change, Phase, Quota


def test_a_change_raises_the_revision_and_tells(store):
    job = submitted(store)
    assert store.record("gpu", [Change(job, {"phase": Phase.HANDING_OVER})]) == []
    changed = store.job(job.id)
    assert (changed.rev, changed.phase) == (2, Phase.HANDING_OVER)
    assert store.publish() == 2
    first, last = store.events_after(0, 10)
    assert (first.body["phase"], last.body["phase"]) == ("queued", "handing_over")
    assert (last.kind, last.job_id, last.body["rev"]) == ("job.state", job.id, 2)


@pytest.mark.parametrize(("max_ranks", "handed_over"), [(4, 1), (8, 2), (None, 2)])
def test_ranks_that_another_cluster_got_meanwhile_are_not_handed_out(
    store, second, max_ranks, handed_over
):
    store.put_project("default", Quota(max_ranks=max_ranks))
    jobs = [submitted(store, cluster=name, num_ranks=4) for name in ("gpu", "other")]

    def hand_over(one, job):
        return one.record(job.cluster, [Change(job, {"phase": Phase.HANDING_OVER})])

    with ThreadPoolExecutor(2) as threads:
        skipped = list(threads.map(hand_over, (store, second), jobs))
    assert skipped.count([]) == handed_over
    assert store.usage("default")["ranks"] == 4 * handed_over


def test_what_moved_meanwhile_is_left_out(store):
    moved, stays = submitted(store), submitted(store)
    store.change(moved.id, priority=-1)
    changes = [Change(job, {"why_pending": "quota"}) for job in (moved, stays)]
    changes.append(Change(new_job(id="no-such-job"), {"why_pending": "quota"}))
    skipped = store.record("gpu", changes)
    assert {change.job.id for change in skipped} == {moved.id, "no-such-job"}
    assert store.job(moved.id).why_pending == ""
    assert store.job(stays.id).why_pending == "quota"


def test_rows_that_were_just_written_are_not_read_again(store):
    written, moved = submitted(store), submitted(store)
    known = {job.id: job for job in store.alive("gpu")}
    store.change(moved.id, priority=-1)
    changes = [Change(job, {"progress": {"step": 5}}) for job in (written, moved)]
    store.record("gpu", changes, known)
    assert known == {written.id: store.job(written.id), moved.id: moved}
    now = store.alive("gpu", known)
    assert now[0] is known[written.id]
    assert now[1] == store.job(moved.id)


def test_jobs_of_another_cluster_are_left_alone(store):
    job = submitted(store, cluster="other")
    change = Change(job, {"state": "running"})
    assert store.record("gpu", [change]) == [change]
    assert store.job(job.id) == job


def test_an_end_has_a_time_and_leaves_those_that_are_alive(store):
    ended, alive = submitted(store), submitted(store)
    assert [job.id for job in store.alive("gpu")] == [ended.id, alive.id]
    attempts = [Attempt(ended.id, 1, "boot", 5.0, 6.0, "DataError", "no file", 12)]
    final = {"phase": Phase.FINAL, "state": "failed", "reason": "DataError"}
    store.record("gpu", [Change(ended, final, attempts)])
    assert [job.id for job in store.alive("gpu")] == [alive.id]
    assert abs(store.job(ended.id).finished_at_s - store.now_s()) < 60
    assert store.attempts(ended.id) == attempts
    again = [Attempt(ended.id, 1, "boot", 5.0, 7.0), Attempt(ended.id, 2, "boot", 8.0)]
    store.record("gpu", [Change(store.job(ended.id), {"attempt": 2}, again)])
    assert store.attempts(ended.id) == [*attempts, again[1]], "what was written of an end stays"


def test_jobs_that_have_not_changed_are_not_read_again(store):
    first, second, third = (submitted(store) for _ in range(3))
    known = {job.id: job for job in store.alive("gpu")}
    store.record("gpu", [Change(second, {"state": "running"})])
    final = {"phase": Phase.FINAL, "state": "failed", "reason": "DataError"}
    store.record("gpu", [Change(third, final)])
    new = submitted(store)
    found = store.alive("gpu", known)
    assert found == store.alive("gpu")
    assert [job.id for job in found] == [first.id, second.id, new.id]
    assert found[0] is known[first.id]
    assert found[1].state == "running"


def test_a_cluster_keeps_when_it_was_heard_and_reported(store):
    store.put_cluster("gpu", {"state": "up"}, 5.0)
    store.put_cluster("gpu", {"state": "down"})
    [cluster] = store.clusters()
    assert (cluster.name, cluster.state["state"], cluster.observed_at_s) == ("gpu", "down", 5.0)
    assert 0 <= store.report_ages_s()["gpu"] < 300
