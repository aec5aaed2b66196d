"""Watching a job over a connection that may fail."""

import pytest

from distrain.coordinator.handle import JobHandle, raise_for_state
from distrain.coordinator.states import JobState
from distrain.coordinator.view import JobView, Notice
from distrain.errors import ClusterError, JobError


class Scripted(JobHandle):
    """Answers with what it is given, in turn, and then with the last of it."""

    def view(self, since: int = 0) -> JobView:
        answers = self.client
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


RUNS = JobView("job", "a", JobState.RUNNING, 2, 2, progress=(Notice("seen once"),), next_record=1)
DONE = JobView("job", "a", JobState.SUCCEEDED, 2, 2)
SILENCE = ClusterError("the scheduler did not answer")


def watched(*answers: object, lost_after_s: float = 60.0) -> list[JobView]:
    views: list[JobView] = []
    last = Scripted(list(answers), "job").watch(views.append, lost_after_s=lost_after_s)
    assert last is views[-1]
    return views


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.coordinator.handle.POLL_S", 0.0)


def test_a_moment_of_silence_is_waited_out() -> None:
    assert watched(RUNS, SILENCE, SILENCE, DONE) == [RUNS, DONE]


def test_a_scheduler_that_stays_silent_is_lost_with_its_job() -> None:
    runs, lost = watched(RUNS, SILENCE, lost_after_s=0.0)
    assert runs == RUNS
    assert (lost.state, lost.reason, lost.attempt) == (JobState.FAILED, "CoordinatorLost", 2)
    assert "the scheduler did not answer" in (lost.message or "")
    assert lost.progress == ()  # what was seen is not seen again


def test_a_scheduler_that_came_back_without_the_job_has_lost_it() -> None:
    _, lost = watched(RUNS, SILENCE, JobError("the coordinator does not know this job"))
    assert lost.reason == "CoordinatorLost"


def test_a_job_that_was_never_there_is_an_error() -> None:
    with pytest.raises(JobError):
        watched(JobError("the coordinator does not know this job"))
    with pytest.raises(ClusterError):
        watched(SILENCE)


def test_a_bad_end_carries_the_hint() -> None:
    _, lost = watched(RUNS, SILENCE, lost_after_s=0.0)
    with pytest.raises(JobError) as caught:
        raise_for_state(lost, hint="Go on from step 20.")
    assert caught.value.hint == "Go on from step 20."
    assert caught.value.where["reason"] == "CoordinatorLost"
