"""The lifecycle of jobs, told as stories: what happens, and what the lifecycle does about it."""

import pytest
from job_story import Story, kinds

from distrain.events import RankExited, RankFailed, RankFinished, RankStarted, TrainingStarted
from distrain.jobs import JobState, Reason
from distrain.lifecycle.job import AttemptFailure
from distrain.lifecycle.lifecycle import CANCEL_GRACE_S, GIVE_UP_S, LINGER_S, SETTLE_S
from distrain.lifecycle.messages import (
    Cancel,
    ChangePriority,
    EndGang,
    LaunchFailed,
    LaunchGang,
    Reported,
    StopGang,
)
from distrain.lifecycle.verdict import find_culprit

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
    assert [str(move) for move in story.lifecycle.jobs["a"].history] == [
        "pending -> starting",
        "starting -> running",
        "running -> succeeded",
    ]


@pytest.mark.parametrize("exit_code", [0, 1, -6, -9, -11])
def test_success_is_what_a_rank_reported_and_not_its_exit_code(exit_code):
    story = Story(2)
    story.running()
    story.finish("a", 0)
    story.finish("a", 1, exit_code)
    assert story.state() is JobState.SUCCEEDED


def test_a_gang_so_quick_that_its_end_comes_before_its_beginning_succeeds():
    story = Story(1)
    story.submit("a", 1)
    story.finish("a", 0)
    assert story.state() is JobState.SUCCEEDED


def test_a_worker_that_leaves_after_its_rank_finished_costs_nothing():
    story = Story(2)
    story.running()
    story.finish("a", 0)
    story.rank("a", RankFinished(1, 10, 50, 1.0, {}))
    story.cluster(2, without=["w1"])
    assert story.state() is JobState.SUCCEEDED


def test_a_finished_rank_that_then_complains_has_still_finished():
    story = Story(2)
    story.running()
    story.finish("a", 0)
    story.rank("a", RankFinished(1, 10, 50, 1.0, {}))
    story.rank("a", RankFailed(1, "PeerLost", "rank 1: connection closed by peer"))
    story.wait(SETTLE_S)
    story.exit("a", 1, 1)
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


def test_a_finished_gang_that_ends_when_hurried_succeeds_at_once():
    story = Story(1)
    story.running(num_ranks=1)
    story.rank("a", RankFinished(0, 10, 50, 1.0, {}))
    story.wait(LINGER_S)
    assert story.exit("a", 0, -15, stopped=True) == [EndGang("a", 1)]
    assert story.state() is JobState.SUCCEEDED


# --- the queue


def test_jobs_start_in_the_order_of_submission():
    story = Story(2)
    assert kinds(story.submit("a")) == [LaunchGang]
    assert story.submit("b") == []
    assert story.submit("c") == []
    story.train("a")
    story.finish("a", 0)
    ended, launched = story.finish("a", 1)
    assert (ended, launched.job_id) == (EndGang("a", 1), "b")
    assert story.state("c") is JobState.PENDING


def test_two_jobs_that_fit_run_side_by_side_on_different_workers():
    story = Story(4)
    (first,) = story.submit("a")
    (second,) = story.submit("b")
    workers = [p.slot.worker for launch in (first, second) for p in launch.placements]
    assert sorted(workers) == ["w0", "w1", "w2", "w3"]


def test_a_small_job_does_not_overtake_a_large_one():
    story = Story(2)
    story.submit("large", 3)
    story.submit("small", 1)
    assert story.state("small") is JobState.PENDING
    assert story.lifecycle.jobs["large"].why_pending == "needs 3 workers, the cluster has 2"
    assert story.lifecycle.jobs["small"].why_pending == (
        "waits behind large, which needs 3 workers, the cluster has 2"
    )
    story.cluster(4)
    assert story.state("large") is story.state("small") is JobState.STARTING
    assert {job.why_pending for job in story.lifecycle.jobs.values()} == {""}


def test_a_job_that_waits_for_others_says_so():
    story = Story(2)
    story.submit("a")
    story.submit("b", 1)
    assert story.lifecycle.jobs["b"].why_pending == (
        "needs 1 worker, 0 of 2 are free, others run jobs"
    )


def test_submitting_twice_is_submitting_once():
    story = Story(4)
    story.submit("a")
    assert story.submit("a", num_ranks=1) == []
    assert story.lifecycle.jobs["a"].num_ranks == 2
    assert story.count(LaunchGang) == 1


def test_workers_of_a_stopping_job_are_not_given_away():
    story = Story(2)
    story.running("a")
    story.submit("b")
    story.happens(Cancel("a"))
    assert story.state("b") is JobState.PENDING
    story.exit("a", 0, -15, stopped=True)
    assert story.state("b") is JobState.PENDING
    story.exit("a", 1, -15, stopped=True)
    assert story.state("b") is JobState.STARTING


# --- the bad end, and whose fault it was


def test_the_killed_rank_is_the_culprit_though_its_peers_complain_first():
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
    assert culprit.message == (
        "rank 1 (pid 1001 on w1) was killed by SIGKILL; "
        "somebody's `kill -9`, or the kernel was out of memory (see dmesg)"
    )


def test_where_all_lost_a_peer_the_first_to_say_so_is_named():
    story = Story(2)
    story.running()
    for rank in (1, 0):
        story.rank("a", RankFailed(rank, "PeerLost", f"rank {rank}: timed out waiting"))
        story.exit("a", rank, 1)
    story.wait(SETTLE_S)
    assert (story.culprit().reason, story.culprit().rank) == ("PeerLost", 1)


def test_a_rank_that_hangs_is_named_beside_those_that_waited_for_it():
    story = Story(3)
    story.running(num_ranks=3)
    for rank in (0, 2):
        story.rank("a", RankFailed(rank, "PeerLost", f"rank {rank}: timed out waiting"))
    story.exit("a", 0, 1)
    story.wait(SETTLE_S)
    assert story.culprit().message == (
        "rank 0: timed out waiting\nrank 1 (pid 1001 on w1) said nothing and may hang"
    )


def test_a_non_finite_loss_is_told_of_its_earliest_step():
    story = Story(3)
    story.running(num_ranks=3)
    story.rank("a", RankFailed(0, "PeerLost", "rank 0: connection closed by peer"))
    story.rank("a", RankFailed(2, "NonFiniteLoss", "rank 2: loss is nan", step=7))
    story.rank("a", RankFailed(1, "NonFiniteLoss", "rank 1: loss is nan", step=5))
    for rank in range(3):
        story.exit("a", rank, 1)
    story.wait(SETTLE_S)
    assert (story.culprit().rank, story.culprit().step) == (1, 5)


def test_a_rank_that_crashes_after_its_peers_loss_broke_is_not_the_culprit():
    story = Story(2)
    story.running()
    story.rank("a", RankFailed(0, "NonFiniteLoss", "rank 0: loss is nan", step=5))
    story.exit("a", 0, 1)
    story.exit("a", 1, -6)  # gloo aborted
    story.wait(SETTLE_S)
    assert (story.culprit().reason, story.culprit().rank) == ("NonFiniteLoss", 0)


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


def test_a_rank_that_never_exits_is_given_up():
    story = Story(2)
    story.running()
    story.rank("a", RankFailed(0, "DataError", "rank 0: label is 2"))
    story.exit("a", 0, 1)
    story.wait(SETTLE_S)
    assert story.wait(GIVE_UP_S - 0.1) == []
    assert story.wait(0.1) == [EndGang("a", 1)]
    assert story.state() is JobState.FAILED
    assert story.submit("b") == []  # who knows what still runs on the second worker
    assert story.job("b").why_pending == "needs 2 workers, the cluster has 1"
    assert kinds(story.exit("a", 1, -9)) == [LaunchGang]


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (0, "ended with exit code 0, unannounced"),
        (3, "ended with exit code 3, unannounced"),
        (-11, "was killed by SIGSEGV"),
        (-44, "was killed by signal 44"),
        (-200, "was killed by signal 200"),
    ],
)
def test_a_silent_death_is_told_in_words(exit_code, words):
    story = Story(1)
    story.running(num_ranks=1)
    story.exit("a", 0, exit_code, log_tail="bye")
    story.wait(SETTLE_S)
    assert story.culprit() == AttemptFailure(
        Reason.RANK_DIED, f"rank 0 (pid 1000 on w0) {words}", 0, log_tail="bye"
    )


def test_a_death_before_the_first_word_is_told_without_a_pid():
    story = Story(1)
    story.submit("a", 1)
    story.exit("a", 0, 1, log_tail="ModuleNotFoundError")
    story.wait(SETTLE_S)
    assert story.culprit().message == (
        "rank 0 (before it told its pid, on w0) ended with exit code 1, unannounced"
    )


def test_a_rank_that_says_it_was_told_to_stop_though_nobody_did_has_died():
    story = Story(1)
    story.running(num_ranks=1)
    story.exit("a", 0, -15, stopped=True)
    story.wait(SETTLE_S)
    assert story.state() is JobState.FAILED


def test_a_lost_worker_ends_its_gang():
    story = Story(3)
    story.running()
    story.cluster(3, without=["w1"])
    assert kinds(story.wait(SETTLE_S)) == [StopGang]
    story.exit("a", 0, -15, stopped=True)
    assert story.state() is JobState.FAILED
    assert story.culprit() == AttemptFailure(
        Reason.WORKER_LOST, "rank 1: its Dask worker w1 left the cluster", 1
    )


def test_a_lost_worker_that_nobody_uses_changes_nothing():
    story = Story(3)
    story.running()
    story.cluster(3, without=["w2"])
    assert story.wait(SETTLE_S) == []
    assert story.state() is JobState.RUNNING


def test_when_all_workers_leave_no_exit_is_waited_for():
    story = Story(2)
    story.running()
    story.cluster(0)
    assert kinds(story.wait(SETTLE_S)) == [StopGang, EndGang]
    assert story.culprit().reason == Reason.WORKER_LOST


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


# --- cancelling


def test_a_pending_job_is_cancelled_at_once():
    story = Story(0)
    story.submit("a")
    assert story.happens(Cancel("a")) == []
    assert story.state() is JobState.CANCELLED
    assert story.culprit().reason == Reason.CANCELLED
    story.cluster(2)
    assert story.told == []


@pytest.mark.parametrize("ready", [False, True], ids=["starting", "running"])
def test_an_active_job_is_stopped_at_once_and_then_cancelled(ready):
    story = Story(2)
    story.submit("a")
    if ready:
        story.train("a")
    assert kinds(story.happens(Cancel("a"))) == [StopGang]
    assert story.state() is JobState.STOPPING
    story.rank("a", RankFailed(1, "PeerLost", "rank 1: connection closed by peer"))
    story.exit("a", 1, 1)
    story.exit("a", 0, -15, stopped=True)
    assert story.state() is JobState.CANCELLED
    assert story.culprit().reason == Reason.CANCELLED


def test_a_cancel_does_not_wait_for_other_accounts():
    story = Story(2)
    story.running()
    story.rank("a", RankFailed(0, "DataError", "rank 0: label is 2"))
    assert kinds(story.happens(Cancel("a"))) == [StopGang]


def test_a_cancel_of_a_job_that_stops_for_another_reason_keeps_that_reason():
    story = Story(2)
    story.running()
    story.rank("a", RankFailed(0, "DataError", "rank 0: label is 2"))
    story.wait(SETTLE_S)
    assert story.happens(Cancel("a")) == []
    story.wait(GIVE_UP_S)
    assert (story.state(), story.culprit().reason) == (JobState.FAILED, "DataError")
    assert story.count(StopGang) == 1


def test_cancelling_twice_or_nothing_is_harmless():
    story = Story(2)
    story.running()
    assert story.happens(Cancel("none")) == []
    story.happens(Cancel("a"))
    assert story.happens(Cancel("a")) == []
    story.wait(CANCEL_GRACE_S + GIVE_UP_S)
    assert story.happens(Cancel("a")) == []
    assert story.state() is JobState.CANCELLED
    assert (story.count(StopGang), story.count(EndGang)) == (1, 1)


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
    assert story.culprit().message == "somebody cancelled the job"


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


def test_a_job_that_never_gets_workers_says_why():
    story = Story(1)
    story.submit("a", 2, queue_deadline_s=60.0)
    story.submit("b", 1, queue_deadline_s=60.0)
    assert story.wait(60.0) == []
    assert story.state() is JobState.PENDING
    story.wait(0.1)
    assert story.state() is story.state("b") is JobState.FAILED
    assert story.culprit() == AttemptFailure(
        Reason.QUEUE_DEADLINE_EXCEEDED,
        "the job waited in the queue for more than 60 s (deadlines.queue_s): "
        "needs 2 workers, the cluster has 1",
    )
    assert story.culprit("b").message == (
        "the job waited in the queue for more than 60 s (deadlines.queue_s): "
        "waits behind a, which needs 2 workers, the cluster has 1"
    )


def test_time_in_the_queue_does_not_count_against_the_start():
    story = Story(2)
    story.running("long", 2)
    story.submit("next", 2, start_s=60.0)
    story.wait(1e6)
    assert story.state("next") is JobState.PENDING
    for rank in range(2):
        story.finish("long", rank)
    assert story.state("next") is JobState.STARTING
    story.wait(60.0)
    assert story.state("next") is JobState.STARTING
    story.wait(0.1)
    assert story.culprit("next").reason == Reason.START_DEADLINE_EXCEEDED


def test_the_deadline_of_the_queue_ends_with_the_first_placement():
    story = Story(2)
    story.running("low", 2, queue_deadline_s=60.0, start_s=60.0)
    story.wait(61.0)
    story.submit("high", 2, priority=5)
    story.all_exit("low", saved_step=7)
    story.train("high")
    story.wait(1e6)
    assert story.state("low") is JobState.PENDING


def test_a_gang_whose_last_rank_never_gets_ready_names_it():
    story = Story(3)
    story.submit("a", 3, start_s=60.0)
    story.rank("a", TrainingStarted(1, 10, 100, 100, 5))
    assert kinds(story.wait(60.1)) == [StopGang]
    assert story.culprit().message == (
        "attempt 1 did not start within 60 s of its placement (deadlines.start_s): "
        "rank 0, 2 did not get ready"
    )


def test_a_job_that_trains_has_met_its_start_deadline():
    story = Story(2)
    story.running(start_s=60.0)
    assert story.wait(1e6) == []
    assert story.state() is JobState.RUNNING


@pytest.mark.parametrize("workers", [0, 2], ids=["pending", "running"])
def test_the_total_deadline_counts_from_submission(workers):
    story = Story(workers)
    story.submit("a", 2, start_s=1e9, total_s=90.0)
    if workers:
        story.train("a")
    story.wait(90.0)
    assert not story.state().is_final
    story.wait(0.1)
    story.wait(CANCEL_GRACE_S + GIVE_UP_S)
    assert story.state() is JobState.FAILED
    assert story.culprit() == AttemptFailure(
        Reason.DEADLINE_EXCEEDED, "the job did not end within 90 s (deadlines.total_s)"
    )


def test_a_deadline_does_not_stop_a_gang_twice():
    story = Story(2)
    story.running(total_s=90.0)
    story.wait(91.0)
    story.wait(SETTLE_S)
    story.wait(1.0)
    assert story.count(StopGang) == 1


# --- what comes too late changes nothing

LATE = [
    RankStarted(0, 7, "host", "cpu"),
    TrainingStarted(0, 10, 100, 100, 5),
    RankFailed(0, "DataError", "late"),
    RankFinished(0, 10, 50, 1.0, {}),
    RankExited(0, 1, False),
]


@pytest.mark.parametrize("event", LATE, ids=lambda event: event.kind)
def test_events_of_another_attempt_or_job_or_rank_change_nothing(event):
    story = Story(1)
    story.running(num_ranks=1)
    before = repr(story.lifecycle.jobs)
    for job_id, attempt, rank in (("a", 0, 0), ("a", 2, 0), ("none", 1, 0), ("a", 1, 5)):
        told = Reported(job_id, attempt, type(event)(**{**vars(event), "rank": rank}))
        assert story.happens(told) == []
    assert repr(story.lifecycle.jobs) == before


@pytest.mark.parametrize("event", LATE, ids=lambda event: event.kind)
def test_events_of_a_job_that_waits_change_nothing(event):
    story = Story(0)
    story.submit("a", 1)
    before = repr(story.lifecycle.jobs)
    assert story.rank("a", event, attempt=0) == []
    assert repr(story.lifecycle.jobs) == before


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("event", LATE, ids=lambda event: event.kind)
def test_events_of_an_ended_job_change_nothing(event, good):
    story = Story(1)
    story.running(num_ranks=1)
    if good:
        story.finish("a", 0)
    else:
        story.happens(Cancel("a"))
        story.wait(CANCEL_GRACE_S + GIVE_UP_S)
    before = repr(story.lifecycle.jobs)
    assert story.rank("a", event) == []
    story.cluster(0)
    assert story.wait(1000.0) == []
    assert repr(story.lifecycle.jobs) == before
