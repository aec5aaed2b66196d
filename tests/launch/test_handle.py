"""Watching a job over a connection that may fail."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from wording import Wording

from distrain.errors import ClusterError, JobError
from distrain.jobs.job_view import JobView, Notice, Restart
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.launch.scheduler_api import scheduler_api


class Scripted(JobHandle):
    """Answers with what it is given, in turn, and then with the last of it."""

    def view(self, since: int = 0) -> JobView:
        answers = self.client
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


RUNS = JobView("job", "a", JobState.RUNNING, 2, 2, progress=(Notice("seen once"),), next_record=1)
DONE = JobView("job", "a", JobState.SUCCEEDED, 2, 2, recorded=True)
SILENCE = ClusterError("the scheduler did not answer")


def watched(*answers: object, lost_after_s: float = 60.0) -> list[JobView]:
    views: list[JobView] = []
    last = Scripted(list(answers), "job").watch(views.append, lost_after_s=lost_after_s)
    assert last is views[-1]
    return views


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.launch.job_handle.POLL_S", 0.0)


def test_a_scheduler_that_stays_silent_is_lost_with_its_job() -> None:
    assert watched(RUNS, SILENCE, SILENCE, DONE) == [RUNS, DONE], "for a moment it is waited for"
    unknown = JobError("the coordinator does not know this job")
    assert watched(RUNS, SILENCE, unknown)[1].reason == "CoordinatorLost", "it came back without"
    for never_there in (unknown, SILENCE):
        with pytest.raises(type(never_there)):
            watched(never_there)
    runs, lost = watched(RUNS, SILENCE, lost_after_s=0.0)
    assert runs == RUNS
    assert (lost.state, lost.reason, lost.attempt) == (JobState.FAILED, "CoordinatorLost", 2)
    assert lost.progress == ()  # what was seen is not seen again
    with pytest.raises(JobError) as caught:
        raise_for_state(lost, hint="Go on from step 20.")
    assert caught.value.hint == "Go on from step 20."
    assert caught.value.where["reason"] == "CoordinatorLost"


def test_a_job_whose_cluster_left_after_a_notice_was_preempted_not_lost() -> None:
    why = "rank 0: its Dask worker tcp://a:1 has to leave: SIGUSR1"
    ended = Restart(2, "Preempted", why, 40, 9.0)
    waits = replace(RUNS, state=JobState.RESTARTING, restarts=(ended,))
    _, left = watched(waits, SILENCE, lost_after_s=0.0)
    assert (left.state, left.reason) == (JobState.FAILED, "Preempted")
    assert left.message == f"{why}; then its cluster ended"
    _, lost = watched(replace(waits, state=JobState.RUNNING), SILENCE, lost_after_s=0.0)
    assert lost.reason == "CoordinatorLost"


def client_of(answer: Any, status: str = "running") -> Any:
    """A Dask client whose scheduler answers requests so."""

    async def request(**_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    scheduler = SimpleNamespace(address="tcp://there:1", distrain_request=request)
    return SimpleNamespace(
        scheduler=scheduler, status=status, sync=lambda call: asyncio.run(call())
    )


def test_a_client_that_closes_itself_has_no_answer() -> None:
    """Dask's client does that some time after its scheduler went away."""
    closed = RuntimeError("ConnectionPool is closed")
    with pytest.raises(ClusterError):
        JobHandle(client_of(closed, "closing"), "a").view()


@pytest.mark.parametrize("answer", [{"state": "hibernating"}, {"job_id": "a"}])
def test_an_answer_that_cannot_be_read_says_what_to_do(answer: object, wording: Wording) -> None:
    client = client_of({"status": 200, "text": json.dumps(answer)})
    wording.refused(ClusterError, lambda: JobHandle(client, "a").view(), scheduler="tcp://there:1")


def test_a_scheduler_without_a_coordinator_has_no_jobs() -> None:
    client = client_of(None)
    assert list(scheduler_api(client).jobs()) == []
    with pytest.raises(JobError):
        JobHandle(client, "a").view()


def test_a_scheduler_of_another_version_cannot_load_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client: Any = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://there:1"))
    monkeypatch.setattr(
        "distrain.scheduler.http.attach.ensure_coordinator",
        Mock(side_effect=ModuleNotFoundError("No module named 'distrain.scheduler'")),
    )
    spec = parse_spec({"data": {"train": ["a"], "schema": "s"}, "model": {"kind": "dlrm"}})
    with pytest.raises(ClusterError):
        JobHandle(client, "a").submit(spec, tmp_path)


def test_a_scheduler_that_is_too_busy_to_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    async def busy(**words: object) -> None:
        await asyncio.Event().wait()

    scheduler = SimpleNamespace(address="tcp://a:1", distrain_request=busy)
    client: Any = SimpleNamespace(
        scheduler=scheduler, status="running", sync=lambda ask: asyncio.run(ask())
    )
    monkeypatch.setattr("distrain.launch.scheduler_api.ANSWER_S", 0.01)
    with pytest.raises(ClusterError) as caught:
        list(scheduler_api(client).jobs())
    assert caught.value.where == {"scheduler": "tcp://a:1"}
    wording(caught.value)
