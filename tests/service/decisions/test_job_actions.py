"""The table of what is done about one job, and the state that people see."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from service_jobs import NOW_S, a_cluster, a_job, a_sighting

from distrain.service.decisions.api_values import event_document, shown
from distrain.service.decisions.cluster_pass import Pass
from distrain.service.decisions.cluster_state import Memory
from distrain.service.decisions.job_actions import (
    HandOver,
    PutAgain,
    Write,
    answered_cancel,
    cancel as cancel_order,
    first_attempt,
    handed_over,
    reconcile,
)
from distrain.service.decisions.world import JobOrder, SchedulerAnswer, Workers
from distrain.service.values import Change, Event, Intent, Job, Phase, Quota

HANDING = a_job(phase=Phase.HANDING_OVER, epoch="boot-1")
HANDED = replace(
    HANDING, phase=Phase.HANDED_OVER, state="running", attempt=1, started_at_s=1.0, observed_at_s=1
)
GONE = a_cluster(epoch=None)
ANOTHER = a_cluster(epoch="boot-2")


def _cancelled(job: Job) -> Job:
    return replace(job, intent=Intent.CANCEL, cancel_why="alice asked", cancel_grace_s=3.0)


def _written(
    memory: Memory, jobs: list[Job], answer: SchedulerAnswer, now_s: float, **more: Any
) -> list[Change]:
    """What a pass writes after an answer of the scheduler."""
    written: list[Change] = []
    world: Any = SimpleNamespace(
        alive=lambda: jobs,
        changes=lambda epoch, since: answer,
        commit=lambda changes: written.extend(changes) or (),
        ranks_in_use=lambda projects: {"ads": 1},
    )
    Pass(world, memory, "s1", now_s, **more).run()
    return written


def test_why_a_job_waits_is_told_after_the_clock_was_put_back() -> None:
    memory, job = Memory("gpu"), replace(a_job(), num_ranks=2)
    answer = SchedulerAnswer("boot-1", 1, workers=Workers(1, 1, 1))
    [change] = _written(memory, [job], answer, NOW_S, growth="one")
    job = replace(job, why_pending=change.columns["why_pending"])  # and then not too often
    assert not _written(memory, [job], answer, NOW_S + 1, growth="two")
    assert _written(memory, [job], answer, NOW_S - 86_400, growth="two")


def test_jobs_that_are_there_use_the_quota_of_those_that_wait() -> None:
    running, waits = replace(HANDED, observed_at_s=NOW_S), a_job(2)
    seen = a_sighting(running, "running", attempt=1)
    answer = SchedulerAnswer("boot-1", 1, workers=Workers(4, 4, 3), jobs=(seen,))
    quotas = {"ads": Quota(max_ranks=1)}
    [change] = _written(Memory("east"), [running, waits], answer, NOW_S, quotas=quotas)
    assert change.job == waits
    assert "1 of 1 rank in use by job-1" in change.columns["why_pending"]


def test_a_cluster_answers_from_a_whole_answer_until_a_miss() -> None:
    memory = Memory("east")
    memory.update(SchedulerAnswer("boot-1", 1, more=True), 5.0)
    assert memory.cluster().epoch is None
    for revision in (2, 3):
        memory.update(SchedulerAnswer("boot-1", revision), 4.0 + revision)
        assert (memory.cluster().epoch, memory.cluster().since_s) == ("boot-1", 6.0)
    memory.miss("refused", 8.0)
    now = memory.cluster()
    assert (now.epoch, now.since_s, now.trouble) == (None, 8.0, "refused")


def test_an_event_has_the_state_that_was_written() -> None:
    words = ("phase", "intent", "state", "why_pending", "attempt", "cluster")
    body = {word: getattr(HANDED, word) for word in words}
    event = Event(1, HANDED.id, "ads", "alice", "job.state", body, NOW_S)
    assert event_document(event) | seen("running") == event_document(event)


def test_a_cancelled_job_that_waits_here_ends_at_once_whatever_the_cluster_does() -> None:
    (finish,) = reconcile(_cancelled(a_job()), None, GONE, NOW_S)
    assert isinstance(finish, Write)
    assert finish.columns["state"] == "cancelled"
    assert finish.columns["message"] == "alice asked"


@pytest.mark.parametrize("job", [HANDING, HANDED, _cancelled(HANDED)])
def test_nothing_is_done_without_contact_for_a_year(job: Job) -> None:
    assert reconcile(job, None, GONE, NOW_S + 365 * 86400) == ()
    assert reconcile(a_job(), None, a_cluster(), NOW_S) == (), "that is left to admission"


def test_an_uncertain_put_is_sent_again_to_the_same_boot() -> None:
    assert reconcile(HANDING, None, a_cluster(), NOW_S) == (PutAgain(),)


def test_a_job_that_is_there_is_adopted() -> None:
    (take,) = reconcile(HANDING, a_sighting(HANDING, "pending"), a_cluster(), NOW_S)
    assert isinstance(take, Write)
    assert take.columns["phase"] is Phase.HANDED_OVER
    assert take.columns["state"] == "pending"


def test_another_boot_gets_a_new_submission_within_bounds() -> None:
    assert reconcile(HANDED, None, ANOTHER, NOW_S) == (HandOver("boot-2", 1),)
    often = replace(HANDED, scheduler_losses=5)
    (finish,) = reconcile(often, None, ANOTHER, NOW_S)
    assert isinstance(finish, Write)
    assert finish.columns["reason"] == "CoordinatorLost"


def test_a_job_that_only_waited_there_lost_nothing() -> None:
    waited = replace(HANDED, state="pending", attempt=0, scheduler_losses=5)
    assert reconcile(waited, None, ANOTHER, NOW_S) == (HandOver("boot-2", 5),)


def test_first_attempts_follow_all_that_have_been() -> None:
    assert first_attempt(a_job(), 0) == 1
    assert first_attempt(a_job(attempt=3, first_attempt=4), 3) == 4
    assert first_attempt(HANDED, 7) == 8
    assert first_attempt(HANDING, 0) == 2
    row = handed_over(HANDED, "boot-2", 1, 4, NOW_S)
    assert row["phase"] is Phase.HANDING_OVER
    assert row["first_attempt"] == 5


def test_cancel_is_repeated_until_the_job_has_ended() -> None:
    job = _cancelled(replace(HANDED, observed_at_s=NOW_S))
    cancel = cancel_order("alice asked", 1, 3.0)
    assert reconcile(job, a_sighting(job, "running", attempt=1), a_cluster(), NOW_S) == (cancel,)
    done = a_sighting(job, "succeeded", attempt=1)
    (finish,) = reconcile(job, done, a_cluster(), NOW_S)
    assert isinstance(finish, Write)
    assert finish.columns["state"] == "succeeded"


def test_cancel_outranks_the_restart_after_a_lost_scheduler() -> None:
    (finish,) = reconcile(_cancelled(HANDED), None, ANOTHER, NOW_S)
    assert isinstance(finish, Write)
    assert finish.columns["state"] == "cancelled"


def test_a_put_under_way_is_refused_once_its_job_is_cancelled() -> None:
    job = _cancelled(HANDING)
    (cancel,) = reconcile(job, None, a_cluster(), NOW_S)
    assert cancel == cancel_order("alice asked", 1, 3.0)
    never_begun = a_sighting(job, "cancelled", attempt=1)
    row = answered_cancel(job, never_begun, NOW_S) or {}
    assert (row["first_attempt"], row["message"]) == (2, "alice asked")
    assert "attempt" not in row
    won = never_begun.model_copy(update={"state": "succeeded"})
    assert (answered_cancel(job, won, NOW_S) or {})["state"] == "succeeded"
    assert answered_cancel(replace(job, first_attempt=2), never_begun, NOW_S) is None


def test_an_earlier_submission_is_not_this_one() -> None:
    job = replace(HANDING, first_attempt=3)
    old = a_sighting(job, "failed", first_attempt=1, attempt=2)
    assert reconcile(job, old, a_cluster(), NOW_S) == (PutAgain(),)
    (cancel,) = reconcile(job, old.model_copy(update={"state": "running"}), a_cluster(), NOW_S)
    assert isinstance(cancel, JobOrder)


def test_only_what_changed_is_written() -> None:
    seen = a_sighting(HANDED, "running", attempt=1, step=5)
    (take,) = reconcile(HANDED, seen, a_cluster(), NOW_S)
    assert isinstance(take, Write)
    row: dict[str, Any] = dict(take.columns)
    now = replace(HANDED, **row)
    assert reconcile(now, seen, a_cluster(), NOW_S + 100) == ()
    further = seen.model_copy(update={"step": 6})
    (figures,) = reconcile(now, further, a_cluster(), NOW_S + 1)
    assert isinstance(figures, Write)
    assert set(figures.columns) == {"progress", "observed_at_s"}, "told as progress, not as state"


def test_ranks_of_an_attempt_stay_known_while_the_next_has_no_places() -> None:
    seen = a_sighting(HANDED, "running", attempt=1, step=5, gpus=3, num_ranks=3)
    (take,) = reconcile(HANDED, seen, a_cluster(), NOW_S)
    assert isinstance(take, Write)
    assert take.columns["progress"] == {"step": 5, "gpus": 3, "ranks": 3}
    again = a_sighting(HANDED, "starting", attempt=2, step=6, num_ranks=4)
    row: dict[str, Any] = dict(take.columns)
    (take,) = reconcile(replace(HANDED, **row), again, a_cluster(), NOW_S)
    assert isinstance(take, Write)
    assert take.columns["progress"] == {"step": 6, "gpus": 3, "ranks": 3}


def test_priority_changes_reach_a_job_that_waits_there() -> None:
    job = replace(HANDED, state="pending", attempt=0, priority=7, started_at_s=None)
    seen = a_sighting(job, "pending", priority=0)
    assert reconcile(job, seen, a_cluster(), NOW_S) == (
        JobOrder("priority", {"priority": 7, "first_attempt": 1}),
    )
    assert (
        reconcile(job, seen.model_copy(update={"state": "running"}), a_cluster(), NOW_S)[1:] == ()
    )


def test_two_hours_in_the_queue_end_nothing() -> None:
    waits = replace(HANDED, state="pending", attempt=0, started_at_s=None)
    seen = a_sighting(waits, "pending", why_pending="no workers")
    (take,) = reconcile(waits, seen, a_cluster(), NOW_S + 7200)
    assert isinstance(take, Write)
    assert set(take.columns) == {"why_pending", "observed_at_s"}  # what stays is not written
    assert shown(waits, NOW_S + 7200, contact_s=NOW_S + 7199)["state"] == "pending"


def seen(state: str, last_known: str | None = None, why_pending: str = "") -> dict[str, Any]:
    """What the API shows."""
    return {"state": state, "last_known": last_known, "why_pending": why_pending}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (a_job(), seen("queued", None, "it has just been submitted")),
        (a_job(why_pending="behind job-0"), seen("queued", None, "behind job-0")),
        (replace(HANDING, why_pending="no answer"), seen("handing_over", None, "no answer")),
        (replace(HANDING, attempt=1), seen("handing_over", "queued")),
        (HANDED, seen("running")),
        (_cancelled(HANDED), seen("cancelling", "running")),
        (replace(HANDED, phase=Phase.FINAL, state="failed"), seen("failed")),
        (
            replace(HANDED, state="pending"),
            seen("pending", None, "it waits for its turn on cluster east"),
        ),
        (replace(HANDED, state="of_a_later_version"), seen("of_a_later_version")),
    ],
)
def test_shown_states(job: Job, expected: dict[str, Any]) -> None:
    assert shown(job, NOW_S, contact_s=NOW_S - 1) == expected


def test_without_contact_for_30_s_the_state_is_unknown() -> None:
    assert shown(HANDED, NOW_S + 29, contact_s=NOW_S) == seen("running")
    assert shown(HANDED, NOW_S + 30, contact_s=NOW_S) == seen("unknown", "running")
    assert shown(HANDED, NOW_S) == seen("unknown", "running"), "its own sight is old"
