"""Progress of jobs and of work, on a terminal and as plain lines."""

import io

import pytest
from rich.console import Console

from distrain.cli.job_progress import JobProgress
from distrain.cli.progress_bars import WorkProgress
from distrain.jobs.job_view import AttemptStarted, JobView, Notice, Record, Restart
from distrain.jobs.states import JobState

KILLED = Restart(1, "RankDied", "rank 1 was killed by SIGKILL\nits last output: none", 40, 12.0)


def view(state: JobState, *progress: object, **fields: object) -> JobView:
    return JobView("a-1", "a", state, 1, 2, progress=progress, **fields)  # type: ignore[arg-type]


def said(*views: JobView) -> list[str]:
    text = io.StringIO()
    with JobProgress(Console(file=text, width=40)) as progress:
        for one in views:
            progress.show(one)
    return text.getvalue().splitlines()


def test_a_restart_is_told_once_with_its_cause_and_where_it_goes_on() -> None:
    restarting = {"restarts": (KILLED,)}
    lines = said(
        view(JobState.RUNNING, AttemptStarted(1, 0, 2)),
        view(JobState.RESTARTING, why_pending="waits 0.9 s before its next attempt", **restarting),
        view(JobState.RESTARTING, why_pending="waits 0.7 s before its next attempt", **restarting),
        view(JobState.RUNNING, AttemptStarted(2, 20, 1, "RankDied", "killed"), **restarting),
    )
    assert len(said(view(JobState.RUNNING, AttemptStarted(3, 0, 2)))) == 2, "a resumed run"
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
        view(JobState.RUNNING, Notice("stopped early after step 10", is_warning=False)),
        view(JobState.SUCCEEDED),
    )
    assert lines == [
        "job a-1: pending: needs 2 workers, the cluster has 1",
        "job a-1: running",
        "warning: the checkpoint of step 5: the disk is full",
        "validated at step 10: loss 0.5000  AUC 0.7500",
        "note: stopped early after step 10",
        "job a-1: succeeded",
    ]


def test_a_narrow_terminal_shows_whole_parts_of_the_progress() -> None:
    screen = io.StringIO()
    train = Record("train", 0, 1200, 5, 5_000_000, 60.0, 83_333.0, 0.1234, 0.9, 0.7654, 1e-4)
    console = Console(file=screen, force_terminal=True, width=80)
    with JobProgress(console) as progress:
        progress.show(view(JobState.RUNNING, train, num_steps=4000, total_rows=20_000_000))
    assert "step 1,200 of 4,000  3m00s left  loss 0.1234  AUC 0.7654" in screen.getvalue()
    assert "waiting" not in screen.getvalue(), "the least important part has no room"
    assert "…" not in screen.getvalue()


def test_the_progress_of_a_very_narrow_terminal_is_cut() -> None:
    train = Record("train", 0, 1200, 5, 5_000_000, 60.0, 83_333.0, 0.1234, 0.9, 0.7654, 1e-4)
    for width in range(1, 41):
        screen = io.StringIO()
        with JobProgress(Console(file=screen, force_terminal=True, width=width)) as progress:
            progress.show(view(JobState.RUNNING, train, num_steps=4000, total_rows=20_000_000))
        assert width < 14 or "step" in screen.getvalue()


class Clock:
    """Time that passes when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("terminal", [False, True])
def test_rate_and_time_to_go_are_told(terminal: bool) -> None:
    screen, clock = io.StringIO(), Clock()
    console = Console(file=screen, force_terminal=terminal, width=100)
    with WorkProgress(console, clock, from_start=True) as progress:
        for second in range(25):
            clock.now_s = 100.0 + second
            progress.show("reading", second, 24, 1000 * second)
        clock.now_s += 1.0
        progress.show("writing", 0, 1, 0)
        progress.show("writing", 0, 1, 0, "files")
    said = screen.getvalue()
    assert "24/24 tasks, 24,000 rows, 1,000 rows/s, in 24s" in said
    if terminal:
        return
    # A line at the start, one every ten seconds, one at the end.
    assert said.splitlines()[:4] == [
        "reading: 0/24 tasks, 0 rows",
        "reading: 10/24 tasks, 10,000 rows, 1,000 rows/s, 14s left",
        "reading: 20/24 tasks, 20,000 rows, 1,000 rows/s, 4s left",
        "reading: 24/24 tasks, 24,000 rows, 1,000 rows/s, in 24s",
    ]
