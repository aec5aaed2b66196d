"""The rows of attempts for the restarts that a scheduler reports."""

import pytest

from distrain.jobs.job_view import JobView, Restart
from distrain.jobs.states import JobState
from distrain.jobs.status import job_of_scheduler
from distrain.scheduler.history.job_json import last_restart
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.job_actions import Write, reconcile
from distrain.service.reconcile.cluster_world import attempts_of
from distrain.service.values import Attempt, Job, Phase


def attempts_after(
    restart: object, number: int, state: str = "running", **row: object
) -> list[Attempt]:
    """The rows for a scheduler's document without metrics, after attempt 1 was seen."""
    document = {"id": "a", "state": state, "attempt": number, "first_attempt": 1}
    seen = job_of_scheduler({**document, "last_restart": restart})
    values = {"attempt": 1, "epoch": "old", "phase": Phase.HANDED_OVER, "progress": {"ranks": 2}}
    job = Job("a", "ads", "alice", "a", "main", 0, 2, "runs/a", **{**values, **row})  # type: ignore[arg-type]
    (written,) = reconcile(job, seen, ClusterNow("main", "new"), 9.0)
    assert isinstance(written, Write)
    return list(attempts_of(job, written.columns))


def restart_of(*numbers: int) -> object:
    ends = tuple(Restart(n, "RankDied", f"killed {n}\nmore", 10 * n, 5.0) for n in numbers)
    return last_restart(JobView("a", "a", JobState.RUNNING, numbers[-1] + 1, 2, restarts=ends))


def test_an_attempt_that_ended_has_the_reason_of_its_restart() -> None:
    ended, now = attempts_after(restart_of(1), 2)
    assert ended == Attempt("a", 1, "old", 9.0, 9.0, "RankDied", "killed 1", 10, ranks=2)
    assert now == Attempt("a", 2, "new", 9.0)


def test_an_attempt_between_two_observations_has_a_row() -> None:
    first, second, now = attempts_after(restart_of(1, 2), 3)
    assert first == Attempt("a", 1, "old", 9.0, 9.0, ranks=2), "its reason is not known"
    assert second == Attempt("a", 2, "new", 9.0, 9.0, "RankDied", "killed 2", 20)
    assert now == Attempt("a", 3, "new", 9.0)
    unseen, now = attempts_after(restart_of(1), 2, attempt=0)
    assert (unseen.attempt, unseen.reason, now.attempt) == (1, "RankDied", 2)


def test_an_attempt_ends_when_its_job_is_in_the_queue_again() -> None:
    [ended] = attempts_after(restart_of(1), 1, "pending")
    assert ended == Attempt("a", 1, "old", 9.0, 9.0, "RankDied", "killed 1", 10, ranks=2)
    [unseen] = attempts_after(restart_of(1), 1, "pending", attempt=0)
    assert (unseen.ended_at_s, unseen.reason) == (9.0, "RankDied")
    assert not attempts_after(restart_of(1), 1, "restarting"), "its workers are reserved"


@pytest.mark.parametrize("malformed", [7, {}, {"attempt": "1", "step": 2}, {"attempt": 1}])
def test_a_malformed_restart_gives_no_reason(malformed: object) -> None:
    ended, now = attempts_after(malformed, 2)
    assert (ended.attempt, ended.reason, now.attempt) == (1, None, 2)
