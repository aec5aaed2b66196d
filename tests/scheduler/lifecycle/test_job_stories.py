"""Jobs of one attempt: success, the queue, culprits, cancelling and deadlines."""

from dataclasses import replace

import pytest
from job_story import Story, kinds, submission

from distrain.jobs.events import (
    CheckpointSaved,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    StopNoticed,
    TrainingStarted,
)
from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.failed_attempt import find_culprit
from distrain.scheduler.lifecycle.job import AttemptFailure
from distrain.scheduler.lifecycle.lifecycle import CANCEL_GRACE_S, GIVE_UP_S, LINGER_S, SETTLE_S
from distrain.scheduler.lifecycle.messages import (
    Cancel,
    ChangePriority,
    EndGang,
    LaunchFailed,
    Reported,
    StopGang,
    WorkerLeaving,
)

# --- the good end


def test_a_job_starts_runs_and_succeeds():
    story = Story(num_workers=2)
    (launch,) = story.submit("a")
    assert (launch.job_id, launch.attempt) == ("a", 1)
    assert [p.slot.worker for p in launch.placements] == ["w0", "w1"]
    assert story.state() is JobState.STARTING
    story.rank("a", TrainingStarted(0, 10, 100, 100, 5))
    assert story.state() is JobState.STARTING
    story.rank("a", TrainingStarted(1, 10, 100, 100, 5))
    assert story.state() is JobState.RUNNING
    assert story.finish("a", 0) == []
    assert story.finish("a", 1) == [EndGang("a", 1)]
    assert story.state() is JobState.SUCCEEDED
    assert story.culprit() is None
    assert [move.new for move in story.moves] == ["starting", "running", "succeeded"]


@pytest.mark.parametrize("exit_code", [0, 1, -9])
def test_success_is_what_ranks_reported_whatever_follows(exit_code):
    story = Story(2)
    story.submit("a")
    story.finish("a", 0)  # before it began to train
    story.rank("a", RankFinished(1, 10, 50, 1.0, {}))
    story.rank("a", RankFailed(1, "PeerLost", "rank 1: connection closed by peer"))
    story.wait(SETTLE_S)
    if exit_code:
        story.exit("a", 1, exit_code)
    else:
        story.cluster(2, without=["w1"])
    assert story.state() is JobState.SUCCEEDED


def test_a_finished_gang_that_lingers_is_hurried_and_has_still_succeeded():
    story = Story(2)
    story.running(total_s=20.0)
    story.finish("a", 0)
    story.rank("a", RankFinished(1, 10, 50, 1.0, {}))
    assert story.wait(LINGER_S - 1) == []  # the total deadline is for work, and that is done
    assert kinds(story.wait(1)) == [StopGang]
    assert story.wait(GIVE_UP_S - 1) == []
    assert story.wait(1) == [EndGang("a", 1)]
    assert story.state() is JobState.SUCCEEDED


# --- the queue


def test_a_small_job_does_not_overtake_a_large_one(wording):
    story = Story(2)
    story.submit("large", 3)
    story.submit("small", 1)
    assert story.state("small") is JobState.PENDING
    wording(story.job("large").why_pending)
    wording(story.job("small").why_pending)
    story.submit("small", 4)
    assert story.job("small").num_ranks == 1, "submitting twice is submitting once"
    story.cluster(4)
    assert story.state("large") is story.state("small") is JobState.STARTING
    assert {job.why_pending for job in story.lifecycle.jobs.values()} == {""}


# --- the bad end, and whose fault it was


def test_the_killed_rank_is_the_culprit_though_its_peers_complain_first(wording):
    story = Story(3)
    story.running(num_ranks=3)
    for peer in (0, 2):
        story.rank("a", RankFailed(peer, "PeerLost", f"rank {peer}: connection closed by peer"))
        story.exit("a", peer, 1)
    assert story.state() is JobState.RUNNING
    story.exit("a", 1, -9, log_tail="step 5")
    assert kinds(story.wait(SETTLE_S)) == [StopGang, EndGang]
    assert story.state() is JobState.FAILED
    culprit = story.culprit()
    assert (culprit.reason, culprit.rank, culprit.log_tail) == (Reason.RANK_DIED, 1, "step 5")
    wording(culprit.message)


def test_a_rank_that_hangs_is_named_beside_those_that_waited_for_it(wording):
    story = Story(3)
    story.running(num_ranks=3)
    for rank in (0, 2):
        story.rank("a", RankFailed(rank, "PeerLost", f"rank {rank}: timed out waiting"))
    story.exit("a", 0, 1)
    story.wait(SETTLE_S)
    assert (story.culprit().reason, story.culprit().rank) == ("PeerLost", 0)
    wording(story.culprit().message)


@pytest.mark.parametrize(
    ("reasons", "culprit"),
    [
        (["PeerLost", "DataError", "PeerLost"], 1),
        (["DataError", "OutOfMemory"], 0),
        (["OutOfMemory", Reason.CANCELLED, "PeerLost"], 1),
        (["PeerLost", "PeerLost"], 0),
        (["NonFiniteLoss:9", "RankDied", "NonFiniteLoss:3", "PeerLost"], 2),
        (["RankDied", "NonFiniteLoss:3"], 0),
        (["NonFiniteLoss", "NonFiniteLoss:3"], 1),
        (["NonFiniteLoss:3", "NonFiniteLoss:3"], 0),
        (["NonFiniteLoss:0", "NonFiniteLoss"], 0),
    ],
)
def test_who_is_the_culprit(reasons, culprit):
    failures = []
    for rank, text in enumerate(reasons):
        reason, _, step = str(text).partition(":")
        failures.append(AttemptFailure(reason, f"rank {rank}", rank, int(step) if step else None))
    assert find_culprit(failures).rank == culprit


def test_the_first_failure_stops_the_gang_after_a_moment_and_not_before():
    story = Story(2)
    story.running()
    assert story.rank("a", RankFailed(0, "DataError", "rank 0: label is 2")) == []
    assert story.wait(SETTLE_S - 0.1) == []
    (stop,) = story.wait(0.1)
    assert isinstance(stop, StopGang)
    assert [p.world.rank for p in stop.placements] == [0, 1]
    assert story.state() is JobState.STOPPING
    assert story.wait(1.0) == []
    story.exit("a", 0, 1)
    assert story.exit("a", 1, -15, stopped=True) == [EndGang("a", 1)]
    assert story.state() is JobState.FAILED
    assert (story.culprit().reason, story.culprit().message) == ("DataError", "rank 0: label is 2")


@pytest.mark.parametrize("exit_code", [0, 3, -11, -15, -44, -200])
def test_a_silent_death_is_described(exit_code, wording):
    story = Story(1)
    story.submit("a", 1)
    if exit_code != 3:
        story.train()  # otherwise its process id is unknown
    story.exit("a", 0, exit_code, stopped=exit_code == -15, log_tail="bye")
    story.wait(SETTLE_S)
    assert story.state() is JobState.FAILED
    culprit = story.culprit()
    assert (culprit.reason, culprit.rank, culprit.log_tail) == (Reason.RANK_DIED, 0, "bye")
    wording(culprit.message)


def test_a_rank_that_the_watchdog_of_nccl_ended_names_those_that_said_nothing(wording):
    story = Story(2)
    story.running(num_ranks=2)
    tail = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"
    story.exit("a", 0, -6, log_tail=tail)
    story.wait(SETTLE_S)
    culprit = story.culprit()
    assert (culprit.reason, culprit.rank, culprit.log_tail) == (Reason.PEER_LOST, 0, tail)
    wording(culprit.message)


def test_a_lost_worker_ends_its_gang_and_no_exit_of_its_rank_is_awaited():
    story = Story(3)
    story.running()
    story.cluster(2)
    assert story.wait(SETTLE_S) == [], "nobody used the third"
    story.cluster(2, without=["w1"])
    assert kinds(story.wait(SETTLE_S)) == [StopGang]
    assert kinds(story.cluster(0)) == [EndGang]
    assert story.state() is JobState.FAILED
    assert story.culprit() == AttemptFailure(
        Reason.WORKER_LOST, "rank 1: its Dask worker w1 left the cluster", 1
    )


def test_a_launch_that_failed_ends_the_job():
    story = Story(2)
    story.submit("a")
    story.happens(LaunchFailed("a", 1, "no store"))
    assert kinds(story.wait(SETTLE_S)) == [StopGang, EndGang]
    assert story.culprit() == AttemptFailure("RankFailed", "no store")
    story.submit("b")
    story.happens(LaunchFailed("b", 0, "another attempt's"))
    story.happens(LaunchFailed("none", 1, "nobody's"))
    assert story.wait(SETTLE_S) == []
    assert story.state("b") is JobState.STARTING
    story.happens(Cancel("b", grace_s=0.0))
    story.wait(GIVE_UP_S)
    assert not story.lifecycle.usable_slots, "ranks might still begin"
    story.happens(LaunchFailed("b", 1, "no store"))
    assert len(story.lifecycle.usable_slots) == 2


# --- cancelling


def wait_for_a_worker(story):
    story.cluster(1)
    story.wait(SETTLE_S)
    story.all_exit()
    assert story.state() is JobState.RESTARTING


SITUATIONS = {
    "pending": (lambda story: story.cluster(0), None),
    "starting": (lambda story: None, CANCEL_GRACE_S),
    "running": (lambda story: story.train(), CANCEL_GRACE_S),
    "failing": (lambda story: story.rank("a", RankFailed(1, "DataError", "x")), CANCEL_GRACE_S),
    "restarting": (wait_for_a_worker, None),
    "leaving": (lambda story: story.happens(WorkerLeaving("w1", "SIGTERM")), CANCEL_GRACE_S),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_job_is_cancelled_at_once_or_after_a_short_grace(situation, wording):
    arrive, grace_s = SITUATIONS[situation]
    story = Story(0 if situation == "pending" else 2)
    story.submit("a", budgets=(0, 1, None), backoff_s=30.0)
    arrive(story)
    answers = story.happens(Cancel("a", "by SIGTERM"))
    assert [stop.grace_s for stop in answers] == ([] if grace_s is None else [grace_s])
    if answers:
        assert story.state() is JobState.STOPPING
        story.submit("b")
        story.rank("a", RankFailed(1, "PeerLost", "rank 1: connection closed by peer"))
        story.exit("a", 1, 1)
        assert story.state("b") is JobState.PENDING, "workers of a stopping job are in use"
        story.exit("a", 0, -15, stopped=True)
    assert (story.state(), story.culprit().reason) == (JobState.CANCELLED, Reason.CANCELLED)
    wording(story.culprit().message)


def test_a_cancel_of_a_job_that_stops_for_another_reason_keeps_that_reason():
    story = Story(2)
    story.running()
    story.rank("a", RankFailed(0, "DataError", "rank 0: label is 2"))
    story.wait(SETTLE_S)
    assert story.happens(Cancel("a")) == []
    story.wait(GIVE_UP_S)
    assert (story.state(), story.culprit().reason) == (JobState.FAILED, "DataError")
    assert story.count(StopGang) == 1


def test_who_cancels_may_say_how_long_a_checkpoint_may_take():
    story = Story(2)
    story.running()
    (stop,) = story.happens(Cancel("a", grace_s=600.0))
    assert stop.grace_s == 600.0
    assert story.happens(Cancel("a")) == [], "it stops already, as somebody asked"
    assert story.happens(Cancel("a", grace_s=900.0)) == [], "nor does a longer one change that"
    (stop,) = story.happens(Cancel("a", "in a hurry", grace_s=0.0))
    assert stop.grace_s == 0.0
    story.wait(GIVE_UP_S)
    assert story.state() is JobState.CANCELLED
    assert story.culprit().message == "a user cancelled the job"


def test_a_job_that_waits_gets_another_priority():
    story = Story(2)
    story.running("runs", 2)
    story.submit("a", 2)
    story.submit("b", 2)
    story.wait(0.0)
    assert story.job("b").why_pending.startswith("waits behind a,")
    story.happens(ChangePriority("nobody", 1))
    story.happens(ChangePriority("runs", -1))
    assert story.job("runs").request.priority == 0, "it does not wait"
    assert story.happens(ChangePriority("b", 0)) == []
    (stop,) = story.happens(ChangePriority("b", 1))
    assert (stop.job_id, story.culprit("runs").reason) == ("runs", Reason.PREEMPTED)
    assert story.job("a").why_pending.startswith("waits behind b,")


# --- deadlines


def test_a_job_that_never_gets_workers_says_why(wording):
    story = Story(1)
    story.submit("a", 2, queue_s=60.0)
    story.submit("b", 1, queue_s=60.0)
    assert story.wait(60.0) == []
    assert story.state() is JobState.PENDING
    story.wait(0.1)
    assert story.state() is story.state("b") is JobState.FAILED
    assert story.culprit().reason == Reason.QUEUE_DEADLINE_EXCEEDED
    wording(story.culprit().message)
    wording(story.culprit("b").message)


def test_the_start_deadline_counts_from_the_placement(wording):
    story = Story(2)
    story.running("low", queue_s=60.0, start_s=60.0)
    assert story.wait(1e6) == [], "a job that trains has met its deadline"
    story.submit("next", start_s=60.0, priority=5)
    story.all_exit("low", saved_step=7)
    story.train("next", num_ranks=1)
    story.submit("more", start_s=60.0)
    story.wait(60.0)
    assert story.state("next") is JobState.STARTING
    assert kinds(story.wait(0.1)) == [StopGang]
    assert story.culprit("next").reason == Reason.START_DEADLINE_EXCEEDED
    wording(story.culprit("next").message)
    story.wait(1e6)
    assert story.state("low") is not JobState.FAILED, "the queue's ends with the first placement"


@pytest.mark.parametrize("workers", [0, 2], ids=["pending", "running"])
def test_the_total_deadline_counts_from_submission(workers):
    story = Story(workers)
    story.submit("a", 2, start_s=1e9, total_s=90.0)
    if workers:
        story.train("a")
    story.wait(90.0)
    assert not story.state().is_final
    story.wait(0.1)
    story.wait(SETTLE_S)
    story.wait(CANCEL_GRACE_S + GIVE_UP_S)
    assert story.state() is JobState.FAILED
    assert story.count(StopGang) == (1 if workers else 0)
    assert story.culprit() == AttemptFailure(
        Reason.DEADLINE_EXCEEDED, "the job did not end within 90 s (deadlines.total_s)"
    )


@pytest.mark.parametrize(
    ("limits", "has_run", "ends"),
    [
        ({"total_s": 90.0}, True, True),
        ({"queue_s": 90.0}, False, True),
        ({"queue_s": 90.0}, True, False),
    ],
)
def test_deadlines_count_the_time_before_the_scheduler_got_the_job(limits, has_run, ends):
    story = Story(0)
    story.happens(replace(submission("a", 2, **limits), age_s=60.0, has_run=has_run))
    story.wait(30.0)
    assert not story.state().is_final
    story.wait(0.1)
    assert story.state().is_final is ends


# --- what comes too late changes nothing

LATE = [
    RankStarted(0, 7, "host", "cpu"),
    TrainingStarted(0, 10, 100, 100, 5),
    RankFailed(0, "DataError", "late"),
    RankFinished(0, 10, 50, 1.0, {}),
    RankExited(0, 1, False),
    StopNoticed(0, "SIGTERM"),
    CheckpointSaved(0, 50, "there", 1, 0.0, 0.0),
]


def ended(story):
    story.happens(Cancel("b"))
    story.happens(Cancel("a"))
    story.wait(CANCEL_GRACE_S + GIVE_UP_S)


@pytest.mark.parametrize(
    ("arrive", "who"),
    [
        (lambda story: story.train(), [("a", 0, 0), ("a", 2, 0), ("none", 1, 0), ("a", 1, 5)]),
        (lambda story: story.cluster(0), [("b", 0, 0)]),
        (lambda story: story.finish("a", 0), [("a", 1, 0)]),
        (ended, [("a", 1, 0)]),
    ],
    ids=["other attempts, jobs and ranks", "waiting", "succeeded", "cancelled"],
)
def test_late_events_change_nothing(arrive, who):
    story = Story(1)
    story.submit("a", 1, budgets=(0, 9, None))
    story.submit("b", 1)
    arrive(story)
    before = repr(story.lifecycle.jobs)
    for event in LATE:
        for job_id, attempt, rank in who:
            told = Reported(job_id, attempt, replace(event, rank=rank))
            assert story.happens(told) == []
    assert repr(story.lifecycle.jobs) == before
