"""What the screen says while a job runs, as plain lines."""

import io

from rich.console import Console

from distrain.cli.live import LiveProgress
from distrain.coordinator.states import JobState
from distrain.coordinator.view import JobView, Notice, Record, Resumed, Setback

KILLED = Setback(1, "RankDied", "rank 1 was killed by SIGKILL\nits last words: none", 40, 12.0)


def view(state: JobState, *progress: object, **fields: object) -> JobView:
    return JobView("a-1", "a", state, 1, 2, progress=progress, **fields)  # type: ignore[arg-type]


def said(*views: JobView) -> list[str]:
    text = io.StringIO()
    with LiveProgress(Console(file=text, width=40)) as progress:
        for one in views:
            progress.show(one)
    return text.getvalue().splitlines()


def test_a_restart_is_told_once_with_its_cause_and_where_it_goes_on() -> None:
    restarting = {"restarts": (KILLED,)}
    lines = said(
        view(JobState.RUNNING, Resumed(1, 0, 2)),
        view(JobState.RESTARTING, why_pending="waits 0.9 s before its next attempt", **restarting),
        view(JobState.RESTARTING, why_pending="waits 0.7 s before its next attempt", **restarting),
        view(JobState.RUNNING, Resumed(2, 20, 1, "RankDied", "killed"), **restarting),
    )
    assert lines == [
        "job a-1: running",
        "attempt 1 ended after step 40: RankDied: rank 1 was killed by SIGKILL",
        "job a-1: restarting: waits 0.9 s before its next attempt",
        "job a-1: running",
        "attempt 2 trains on 1 rank from step 20 on",
    ]


def test_why_a_job_waits_and_what_people_should_know_is_told() -> None:
    valid = Record("valid", 0, 10, 5, 5, 1.0, None, 0.5, 0.9, 0.75, 1e-4)
    lines = said(
        view(JobState.PENDING, why_pending="needs 2 workers, the cluster has 1"),
        view(JobState.RUNNING, Notice("the checkpoint of step 5: the disk is full"), valid),
        view(JobState.SUCCEEDED),
    )
    assert lines == [
        "job a-1: pending: needs 2 workers, the cluster has 1",
        "job a-1: running",
        "warning: the checkpoint of step 5: the disk is full",
        "validated at step 10: loss 0.5000  AUC 0.7500",
        "job a-1: succeeded",
    ]


def test_a_resumed_run_says_from_where() -> None:
    assert said(view(JobState.RUNNING, Resumed(3, 0, 2)))[1:] == [
        "attempt 3 trains on 2 ranks from step 0 on"
    ]
