"""What changed since a revision: nothing is missed, whatever is lost, in bounded answers."""

import json
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from quiet_coordinator import SPEC, quiet_coordinator, say, watched_changes

from distrain.scheduler.http import changes as changes_module
from distrain.scheduler.http.bodies import dumps
from distrain.scheduler.http.changes import Changes
from distrain.scheduler.lifecycle.messages import Cancel, ChangePriority

JOBS = st.sampled_from("abcd")
COLLECT_S = st.sampled_from([0.0, 0.0, 3.0])


def ask(
    changes: Changes, since: int, collect_s: float = 0.0
) -> tuple[int, bool, list[dict[str, Any]]]:
    revision, more, jobs = changes.since(since, collect_s)
    return revision, more, [json.loads(text) for text in jobs]


class PollsAreLostAndRepeated(RuleBasedStateMachine):
    """A follower that may ask again from where it was, as after an answer that was lost."""

    @initialize(
        most_bytes=st.sampled_from([2_000, 6_000, 4 * 2**20]),
        most_jobs=st.sampled_from([1, 2, 100]),
    )
    def begin(self, most_bytes: int, most_jobs: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(changes_module, "MOST_BYTES", most_bytes)
        self.patch.setattr(changes_module, "MOST_JOBS", most_jobs)
        self.most_bytes, self.most_jobs = most_bytes, most_jobs
        self.coordinator = quiet_coordinator()
        self.now_s = 0.0
        self.changes = watched_changes(self.coordinator, lambda: self.now_s)
        self.puts: dict[str, int] = {}
        self.known: dict[str, tuple[int, str]] = {}
        self.priorities: dict[str, int] = {}
        self.revision = 0

    @rule(job=JOBS)
    def submit(self, job: str) -> None:
        attempt = self.puts.get(job, 0) + 1
        if self.coordinator.queue(job, SPEC, f"/runs/{job}", first_attempt=attempt):
            self.puts[job] = attempt

    @rule(job=JOBS)
    def progress(self, job: str) -> None:
        if job in self.puts:
            say(self.coordinator, job, "a notice")

    @rule(job=JOBS, priority=st.integers(-5, 5))
    def change_priority(self, job: str, priority: int) -> None:
        self.coordinator.handle_stimulus(ChangePriority(job, priority))

    @rule(job=JOBS)
    def cancel(self, job: str) -> None:
        self.coordinator.handle_stimulus(Cancel(job))

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(collect_s=COLLECT_S)
    def poll_in_vain(self, collect_s: float) -> None:
        self.changes.since(self.revision, collect_s)  # the answer is lost

    @rule(revision=st.integers(0, 40), collect_s=COLLECT_S)
    def somebody_else_polls(self, revision: int, collect_s: float) -> None:
        self.changes.since(revision, collect_s)

    @rule(collect_s=COLLECT_S)
    def poll(self, collect_s: float) -> None:
        self.take_an_answer(collect_s)

    def take_an_answer(self, collect_s: float = 0.0) -> bool:
        revision, more, jobs = ask(self.changes, self.revision, collect_s)
        assert revision >= self.revision
        assert len(jobs) <= self.most_jobs
        size = sum(len(json.dumps(job, separators=(",", ":"))) for job in jobs)
        assert size <= self.most_bytes or len(jobs) == 1
        for job in jobs:
            name = job["id"]
            self.known[name] = job["first_attempt"], job["state"]
            self.priorities[name] = job["priority"]
        self.revision = revision
        return more

    @rule()
    def poll_to_the_end(self) -> None:
        polls = 0
        while self.take_an_answer():
            polls += 1
            assert polls < 1000, "there is always more"
        jobs = self.coordinator.lifecycle.jobs
        last = {name: (job.request.first_attempt, str(job.state)) for name, job in jobs.items()}
        assert self.known == last
        assert self.priorities == {name: job.request.priority for name, job in jobs.items()}

    def teardown(self) -> None:
        try:
            self.poll_to_the_end()
        finally:
            self.patch.undo()


TestPollsAreLostAndRepeated = PollsAreLostAndRepeated.TestCase
TestPollsAreLostAndRepeated.settings = settings(
    deadline=None, max_examples=20, stateful_step_count=25
)


def test_news_of_jobs_that_only_go_on_are_collected() -> None:
    coordinator, now_s = quiet_coordinator(), [0.0]
    changes = watched_changes(coordinator, lambda: now_s[0])
    for name in "ab":
        coordinator.queue(name, SPEC, f"/runs/{name}")
    revision, _, _ = ask(changes, 0, 3.0)

    def told(since: int) -> list[str]:
        return sorted(job["id"] for job in ask(changes, since, 3.0)[2])

    say(coordinator, "a", "1")
    say(coordinator, "b", "2")
    assert told(revision) == []
    assert told(0) == ["a", "b"], "who asks for all gets all"
    say(coordinator, "a", "3")
    now_s[0] = 2.9
    coordinator.handle_stimulus(ChangePriority("a", 7))
    say(coordinator, "b", "4")
    revision = changes.newest
    assert told(revision) == ["a"]
    now_s[0] = 3.0
    assert told(changes.newest) == ["b"]


def test_what_is_not_finite_becomes_null() -> None:
    assert dumps({"a": [float("nan"), (1.5,)]}) == '{"a":[null,[1.5]]}'
