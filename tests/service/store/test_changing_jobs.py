"""What users do with jobs that are there."""

import pytest
from service_store import submitted

from distrain.service.store.errors import WrongState
from distrain.service.store.listing import JobFilter
from distrain.service.values import Change, Intent, Phase

RUNNING = {"phase": Phase.HANDED_OVER, "state": "running"}


def test_a_change_to_the_present_values_changes_nothing(store):
    job = submitted(store, tags={"team": "x"})
    changed = store.change(job.id, priority=-2)
    assert (changed.rev, changed.priority) == (2, -2)
    assert store.change(job.id, priority=-2, tags={"team": "x", "none": None}) == changed


def test_tags_are_found_anew(store):
    job = submitted(store, tags={"team": "x", "kind": "a"})
    store.change(job.id, tags={"team": "y"})
    assert store.jobs(JobFilter(tags=(("team", "x"),)), 10) == []
    assert [found.id for found in store.jobs(JobFilter(tags=(("team", "y"),)), 10)] == [job.id]
    assert store.job(job.id).tags == {"team": "y", "kind": "a"}
    assert store.change(job.id, tags={"kind": None}).tags == {"team": "y"}
    assert store.jobs(JobFilter(tags=(("kind", "a"),)), 10) == []


def test_a_queued_job_is_cancelled_at_once(store):
    job = submitted(store)
    cancelled = store.cancel(job.id, "wrong data", None, "alice")
    assert (cancelled.phase, cancelled.state) == (Phase.FINAL, "cancelled")
    assert cancelled.reason == "Cancelled"  # as of one that its scheduler has ended
    assert cancelled.message == "cancelled by alice: wrong data"
    assert cancelled.finished_at_s is not None
    assert store.cancel(job.id, "again", 5.0, "bob") == cancelled


def test_a_job_at_a_scheduler_keeps_its_phase_until_that_has_ended_it(store):
    job = submitted(store)
    store.record("gpu", [Change(job, RUNNING)])
    wanted = store.cancel(job.id, "", 30.0, "alice")
    assert (wanted.intent, wanted.phase, wanted.cancel_grace_s) == (
        Intent.CANCEL,
        Phase.HANDED_OVER,
        30.0,
    )
    assert store.cancel(job.id, "", None, "alice") == wanted
    shorter = store.cancel(job.id, "", 0.0, "bob")
    assert (shorter.cancel_grace_s, shorter.cancel_why) == (0.0, "cancelled by alice")


def test_only_what_has_ended_is_deleted(store):
    job = submitted(store, tags={"a": "b"})
    with pytest.raises(WrongState):
        store.delete(job.id)
    store.cancel(job.id, "", None, "alice")
    store.delete(job.id)
    assert store.job(job.id) is None
    store.publish()
    assert [event.kind for event in store.events_after(0, 10)][-1] == "job.deleted"


def test_usage_counts_ranks_from_the_hand_over_on(store):
    submitted(store)
    running = submitted(store, num_ranks=8)
    store.record("gpu", [Change(running, RUNNING)])
    assert store.usage("default") == {"ranks": 8, "queued": 1}
