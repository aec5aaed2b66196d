"""Pages of jobs: what is shown is what is filtered by, and pages neither skip nor repeat."""

import itertools
import random

import pytest
from service_store import SPEC, new_job, submitted

from distrain.jobs.states import JobState
from distrain.service.decisions.api_values import shown
from distrain.service.reconcile.cluster_world import attempts_of
from distrain.service.store.errors import IdTaken
from distrain.service.store.listing import JobFilter
from distrain.service.values import NO_CONTACT_S, Attempt, Change, Intent, Phase

ALL = JobFilter()
STATES = ["queued", "handing_over", "cancelling", "unknown", *(state.value for state in JobState)]


def _ids(jobs):
    return [job.id for job in jobs]


def _walk(store, wanted, limit, between=lambda: None):
    found, before = [], None
    while page := store.jobs(wanted, limit, before):
        assert len(page) <= limit
        found += page
        before = page[-1].seq
        between()
    return found


def test_pages_neither_skip_nor_repeat_under_inserts(store):
    there = [submitted(store).id for _ in range(25)]
    found = _walk(store, ALL, 4, between=lambda: submitted(store))
    assert _ids(found) == there[::-1]
    assert len(store.jobs(ALL, 100)) > 25


def _in_all_states(store, now_s):
    """Jobs of each phase, intent and coordinator's state, heard of just now or long ago."""
    for phase, intent, state, heard_s in itertools.product(
        Phase, Intent, JobState, (now_s, now_s - NO_CONTACT_S - 5, None)
    ):
        if state.is_final != (phase is Phase.FINAL):
            continue
        columns = {"phase": phase, "intent": intent, "state": state, "observed_at_s": heard_s}
        job = submitted(store)
        assert store.record("gpu", [Change(job, columns)]) == []


def test_jobs_are_found_by_the_states_that_are_shown(store):
    now_s = store.now_s()
    _in_all_states(store, now_s)
    there = store.jobs(ALL, 1000)
    assert len(there) > 50
    # The last is in the future: a busy machine may take half a minute for what follows.
    for heard_s in (None, now_s - NO_CONTACT_S - 5, now_s + 600):
        store.put_cluster("gpu", {}, heard_s)
        assert [cluster.observed_at_s for cluster in store.clusters()] == [heard_s]
        _found_by_shown_states(store, there, now_s, heard_s)


def _found_by_shown_states(store, there, now_s, heard_s):
    states = {job.id: shown(job, now_s, contact_s=heard_s)["state"] for job in there}
    for state in STATES:
        expected = [job.id for job in there if states[job.id] == state]
        assert _ids(store.jobs(JobFilter(states=(state,)), 1000)) == expected, state
    several = ("failed", "unknown", "queued", "succeeded", "no such state")
    expected = [job.id for job in there if states[job.id] in several]
    assert _ids(_walk(store, JobFilter(states=several), 7)) == expected


def _some_jobs(store):
    """Jobs whose fields are drawn by a fixed seed; as a list, newest first."""
    draw = random.Random(5)
    for _ in range(80):
        job = submitted(
            store,
            project=draw.choice(["default", "ads", "feeds"]),
            owner=draw.choice(["alice", "bob", "carol"]),
            name=draw.choice(["ctr", "CTR_wide", "100%", "a_b", "aXb"]),
            tags=draw.choice([{}, {"team": "x"}, {"team": "y", "kind": "z"}]),
            cluster=draw.choice(["gpu", "cpu"]),
        )
        if job.cluster == "gpu" and draw.random() < 0.5:
            final = {"phase": Phase.FINAL, "state": draw.choice(["failed", "succeeded"])}
            store.record("gpu", [Change(job, final)])
    return store.jobs(ALL, 1000)


FILTERS = [
    (JobFilter(project="ads"), lambda j: j.project == "ads"),
    (JobFilter(owner="bob"), lambda j: j.owner == "bob"),
    (JobFilter(cluster="cpu"), lambda j: j.cluster == "cpu"),
    (JobFilter(tags=(("team", "y"),)), lambda j: j.tags.get("team") == "y"),
    (JobFilter(tags=(("team", "y"), ("kind", "z"))), lambda j: j.tags.get("kind") == "z"),
    (JobFilter(tags=(("team", "z"),)), lambda j: False),
    (JobFilter(text="ctr"), lambda j: "ctr" in j.name.lower()),
    (JobFilter(text="0%"), lambda j: j.name == "100%"),
    (JobFilter(text="a_b"), lambda j: j.name == "a_b"),
    (JobFilter(visible=()), lambda j: False),
    (JobFilter(visible=(("ads", None),)), lambda j: j.project == "ads"),
    (
        JobFilter(visible=(("ads", "alice"), ("feeds", None), ("feeds", "bob"))),
        lambda j: j.project == "feeds" or (j.project, j.owner) == ("ads", "alice"),
    ),
    (
        JobFilter(project="ads", owner="bob", visible=(("ads", "alice"), ("feeds", None))),
        lambda j: False,
    ),
    (
        JobFilter(owner="bob", states=("failed",), visible=(("ads", None), ("default", "bob"))),
        lambda j: j.owner == "bob" and j.project in ("ads", "default") and j.state == "failed",
    ),
    (
        JobFilter(visible=(*((f"project-{n}", None) for n in range(30)), ("ads", None))),
        lambda j: j.project == "ads",
    ),
]


def test_each_filter_finds_what_a_naive_loop_finds(store):
    for project in ("ads", "feeds"):
        store.put_project(project, store.projects()[0].quota)
    there = _some_jobs(store)
    for wanted, holds in FILTERS:
        expected = [job.id for job in there if holds(job)]
        assert _ids(_walk(store, wanted, 9)) == expected, wanted


def test_a_deleted_job_is_not_listed_and_its_id_is_not_used_again(store):
    new = new_job(tags={"team": "x"})
    store.submit(new, SPEC)
    store.cancel(new.id, "", None, "alice")
    store.delete(new.id)
    assert store.jobs(JobFilter(tags=(("team", "x"),)), 10) == []
    with pytest.raises(IdTaken):
        store.submit(new, SPEC)
    assert store.job(new.id) is None


def test_attempts_that_held_ranks_between_two_times(store):
    now_s = store.now_s()
    job = submitted(store, num_ranks=4, tags={"team": "a"})
    gone = submitted(store, owner="bob", project="default")
    for of, ended in ((job, [now_s - 3600, None]), (gone, [now_s - 7200])):
        attempts = [
            Attempt(of.id, number, "boot", now_s - 7200 / number, end)
            for number, end in enumerate(ended, 1)
        ]
        columns = {"progress": {"gpus": 9}} if of is job else {}
        store.record("gpu", [Change(of, columns, attempts)])
    worked = list(store.worked(JobFilter(), now_s - 5400, now_s))
    assert [(one.job_id, one.gpus, one.tags) for one in worked] == [(job.id, 4, {"team": "a"})] * 2
    held_s = sorted(one.until_s - one.since_s for one in worked)
    assert held_s == pytest.approx([1800, 3600], abs=1e-3)
    assert not list(store.worked(JobFilter(owner="bob"), now_s - 5400, now_s))
    assert not list(store.worked(JobFilter(visible=()), 0, now_s))


def test_a_restart_begins_an_attempt_and_an_end_stays(store):
    began_s = store.now_s() - 24 * 3600
    job_id = submitted(store, num_ranks=4).id
    restart = {"attempt": 1, "reason": "RankDied", "message": "killed", "step": 40}
    preempted = {"attempt": 2, "reason": "Preempted", "message": "made room", "step": 50}
    for hours, columns in (
        (0, {"attempt": 1, "state": "running", "started_at_s": began_s}),
        (0, {"progress": {"ranks": 4, "gpus": 4}}),
        (1, {"attempt": 2, "progress": {"last_restart": restart}}),  # without places yet
        (1, {"progress": {"ranks": 2, "gpus": 2}}),  # elastic: two workers are gone
        (2, {"state": "pending", "progress": {"last_restart": preempted, "ranks": 2, "gpus": 2}}),
        (9, {"attempt": 3, "state": "running", "progress": {"ranks": 3, "gpus": 0}}),
        (10, {"progress": {"ranks": 3, "gpus": 0, "step": 60}}),
        (19, {"phase": Phase.FINAL, "state": "failed"}),  # without its scheduler: no number
    ):
        job, at_s = store.job(job_id), began_s + hours * 3600
        columns["observed_at_s"] = at_s
        if "phase" in columns:
            columns["finished_at_s"] = at_s
        attempts = attempts_of(job, columns)
        assert not store.record("gpu", [Change(job, columns, attempts)])
    ends = [(one.reason, one.message, one.step) for one in store.attempts(job_id)[:2]]
    assert ends == [("RankDied", "killed", 40), ("Preempted", "made room", 50)]
    gone = attempts_of(job, {"scheduler_losses": 1, "observed_at_s": at_s})
    ended_s = began_s + 10 * 3600  # its last report
    assert [(one.attempt, one.reason, one.ended_at_s) for one in gone] == [
        (3, "CoordinatorLost", ended_s)
    ]
    later = Attempt(job_id, 3, "boot", began_s, store.now_s(), ranks=9)  # goes on, days after
    again = {"attempt": 3, "progress": {"ranks": 9}}
    store.record("gpu", [Change(store.job(job_id), again, [later])])
    worked = sorted(store.worked(JobFilter(), 0.0, store.now_s()), key=lambda one: one.since_s)
    assert [one.until_s - one.since_s for one in worked] == pytest.approx([3600.0] * 3, abs=1e-3)
    assert [(one.num_ranks, one.gpus) for one in worked] == [(4, 4), (2, 2), (3, 0)]
