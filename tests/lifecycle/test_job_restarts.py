"""Jobs that go on after something ended their attempt, told as stories."""

import pytest
from job_story import Story, kinds

from distrain.events import (
    CheckpointSaved,
    RankFailed,
    RankFinished,
    StacksTaken,
    StepsDone,
    StopNoticed,
    TrainingStarted,
)
from distrain.jobs import JobState, Reason, Slot
from distrain.lifecycle.lifecycle import CANCEL_GRACE_S, GIVE_UP_S, SETTLE_S, Lifecycle
from distrain.lifecycle.messages import (
    Budgets,
    Cancel,
    CheckpointGang,
    EndGang,
    LaunchGang,
    StopGang,
    Submit,
    TakeStacks,
    Tick,
    WorkerLeaving,
    WorkersChanged,
)
from distrain.lifecycle.queue import AVOID_S, FEWER_AFTER_S
from distrain.lifecycle.verdict import LOSSES_S
from distrain.lifecycle.watchdog import STACKS_S
from distrain.progress.collector import Collector
from distrain.scheduler.job_view import show

SOME = Budgets(rank_failures=2, worker_losses=1, preemptions=1)
SAVED = CheckpointSaved(0, 50, "there", 1, 0.0, 0.0)


def die(story, rank=1, job_id="a"):
    """One rank is killed, its peers are stopped, all have ended."""
    attempt = story.job(job_id).attempt
    others = set(story.job(job_id).ranks) - {rank}
    story.exit(job_id, rank, -9, attempt=attempt)
    answers = story.wait(SETTLE_S)[1:]
    for other in others:
        answers += story.exit(job_id, other, -9, attempt=attempt)
    return answers


# --- failures and budgets


def test_a_dead_rank_is_followed_by_another_attempt_on_the_same_workers():
    story = Story(3)
    story.running(budgets=SOME, backoff_s=0.0)
    ended, launched = die(story)
    assert ended == EndGang("a", 1)
    assert (launched.job_id, launched.attempt) == ("a", 2)
    assert story.state() is JobState.STARTING
    story.train()
    assert story.state() is JobState.RUNNING
    assert story.culprit() is None
    (restart,) = story.job().restarts
    assert (restart.attempt, restart.reason) == (1, Reason.RANK_DIED)
    for rank in range(2):
        story.finish("a", rank, attempt=2)
    assert story.state() is JobState.SUCCEEDED


def test_what_an_older_attempt_says_changes_nothing():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0)
    die(story)
    story.train()
    before = repr(story.lifecycle.jobs)
    for event in (
        RankFailed(0, "DataError", "old"),
        RankFinished(0, 1, 1, 1.0, {}),
        StopNoticed(0, "SIGTERM"),
        SAVED,
    ):
        assert story.rank("a", event, attempt=1) == []
    assert repr(story.lifecycle.jobs) == before


def test_the_next_attempt_waits_twice_as_long_after_each_failure_without_progress():
    story = Story(2)
    story.running(budgets=Budgets(rank_failures=9), backoff_s=4.0)
    waits = []
    for _ in range(3):
        die(story)
        assert story.state() is JobState.RESTARTING
        begun_s = story.now_s
        while story.state() is JobState.RESTARTING:
            why = story.job().why_pending
            assert "before its next attempt" in why
            story.wait(1.0)
        waits.append(story.now_s - begun_s)
        story.train()
    assert waits == [4.0, 8.0, 16.0]
    assert why.endswith(", after 3 failures in a row got no further than step 0")
    story.rank("a", StepsDone(0, 0, 70, 1.0, {}, {}, 0.1), attempt=story.job().attempt)
    die(story)  # it came further this time
    story.wait(4.0)
    assert story.state() is JobState.STARTING
    story.train()
    die(story)  # and no further: the second in a row, not the fifth
    story.wait(7.9)
    assert story.state() is JobState.RESTARTING
    story.wait(0.1)
    assert story.state() is JobState.STARTING


def test_losses_of_workers_in_a_short_time_are_followed_by_pauses_that_grow():
    story = Story(2)
    story.running(budgets=Budgets(worker_losses=99), backoff_s=4.0)

    def lose_a_worker(step):
        attempt = story.job().attempt
        story.rank("a", StepsDone(0, 0, step, 1.0, {}, {}, 0.1), attempt=attempt)
        story.cluster(1)
        for rank in range(2):
            story.exit("a", rank, -9, attempt=attempt)
        story.wait(SETTLE_S)
        story.cluster(2)  # its nanny has started it anew
        begun_s, why = story.now_s, story.job().why_pending
        while story.state() is JobState.RESTARTING:
            story.wait(1.0)
        story.train()
        return story.now_s - begun_s, why

    told = [lose_a_worker(step) for step in (10, 20, 30, 40, 50, 60)]  # further each time
    assert [pause_s for pause_s, _ in told] == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert told[0][1] == "waits 4.0 s before its next attempt"
    why = "waits 16.0 s before its next attempt, after 3 losses of workers in 10 minutes"
    assert told[2][1] == why
    story.wait(LOSSES_S)
    assert lose_a_worker(70)[0] == 4.0  # after a quiet time


def test_when_the_budget_is_spent_the_job_fails_with_the_last_reason():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0)
    for _ in range(2):
        die(story)
        story.train()
    die(story)
    assert story.state() is JobState.FAILED
    assert story.culprit().reason == Reason.RANK_DIED
    assert story.culprit().message.endswith("\nno restart is left: rank failures may be 2")
    assert story.job().attempt == 3


@pytest.mark.parametrize(
    "reason",
    [
        "DataError",
        "DeadlineExceeded",
        "InvalidSpec",
        "NonFiniteLoss",
        "OutOfMemory",
        "OutputError",
        "QueueDeadlineExceeded",
        "StartDeadlineExceeded",
    ],
)
def test_what_another_attempt_would_meet_again_ends_the_job(reason):
    story = Story(2)
    story.running(budgets=SOME)
    story.rank("a", RankFailed(1, reason, "why"))
    story.wait(SETTLE_S)
    story.all_exit()
    assert (story.state(), story.culprit().reason) == (JobState.FAILED, reason)


def test_a_lost_worker_is_paid_for_by_its_own_budget():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0)
    story.cluster(2, without=["w1"])
    story.wait(SETTLE_S)
    story.exit("a", 0, -9)
    assert story.state() is JobState.RESTARTING
    assert story.job().spent == {"worker_losses": 1}
    assert story.job().why_pending == "needs 2 workers, the cluster has 1"
    assert kinds(story.cluster(2)) == [LaunchGang]


def test_who_cancelled_a_job_is_told():
    story = Story(2)
    story.running(budgets=SOME)
    story.happens(Cancel("a", "the command that submitted it received SIGTERM on host h"))
    story.all_exit()
    assert story.culprit().message == (
        "the job was cancelled: the command that submitted it received SIGTERM on host h"
    )


def test_a_job_cancelled_while_it_waits_for_its_next_attempt_ends_at_once():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=30.0)
    die(story)
    assert story.happens(Cancel("a")) == []
    assert story.state() is JobState.CANCELLED


def test_a_restart_that_gets_no_workers_misses_its_deadline():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0, start_s=60.0)
    story.wait(1000.0)
    story.cluster(1)
    story.wait(SETTLE_S)
    story.all_exit()
    story.wait(59.0)
    assert story.state() is JobState.RESTARTING
    story.wait(1.1)
    assert story.state() is JobState.FAILED
    assert story.culprit().message == (
        "the job was not placed again within 60 s (deadlines.start_s): "
        "needs 2 workers, the cluster has 1"
    )


def test_each_attempt_has_its_own_time_to_start():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0, start_s=60.0)
    story.wait(1000.0)
    story.cluster(1)
    story.wait(SETTLE_S)
    story.all_exit()
    story.wait(50.0)
    story.cluster(2)
    assert story.state() is JobState.STARTING
    story.wait(59.0)
    assert story.state() is JobState.STARTING
    assert kinds(story.wait(1.1)) == [StopGang]
    assert story.culprit().message == (
        "attempt 2 did not start within 60 s of its placement (deadlines.start_s): "
        "rank 0, 1 did not get ready"
    )


def test_several_moves_at_once_are_told_with_their_own_attempts_and_reasons():
    story = Story(3)
    story.running(budgets=SOME, backoff_s=0.0)
    die(story)
    moves = story.job().history[2:]
    assert [(move.old, move.new, move.attempt) for move in moves] == [
        (JobState.RUNNING, JobState.STOPPING, 1),
        (JobState.STOPPING, JobState.RESTARTING, 1),
        (JobState.RESTARTING, JobState.STARTING, 2),
    ]
    assert [move.at_s for move in moves] == [story.now_s] * 3
    assert [move.reason for move in moves] == [Reason.RANK_DIED, Reason.RANK_DIED, ""]
    assert all(move.why.startswith("RankDied: rank 1 ") for move in moves[:2])
    assert moves[2].why == ""


def test_a_resumed_job_counts_its_attempts_on():
    story = Story(2)
    (launch,) = story.submit("a", first_attempt=5)
    assert launch.attempt == 5


def test_a_worker_whose_rank_never_told_its_end_is_not_used_again_until_it_does():
    story = Story(3)
    story.running(budgets=SOME, backoff_s=0.0)
    story.exit("a", 0, -9)
    story.wait(SETTLE_S)
    ended, launched = story.wait(GIVE_UP_S)
    assert ended == EndGang("a", 1)
    assert [p.slot.worker for p in launched.placements] == ["w0", "w2"]
    story.submit("b", 1)
    assert story.state("b") is JobState.PENDING
    assert kinds(story.exit("a", 1, -9)) == [LaunchGang]  # of the first attempt


# --- reserved workers


def test_the_next_job_does_not_take_the_workers_of_one_that_restarts():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=10.0)
    story.submit("b")
    die(story)
    story.wait(5.0)
    assert story.state("b") is JobState.PENDING
    assert kinds(story.wait(5.0)) == [LaunchGang]
    assert story.state("a") is JobState.STARTING


def test_a_reservation_is_for_a_worker_by_name_whatever_its_address():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0)
    story.submit("b", 1)
    story.workers(Slot("host", "w0", "w0"))
    story.wait(SETTLE_S)
    story.exit("a", 0, -9)
    assert story.state("b") is JobState.PENDING
    (launch,) = story.workers(Slot("host", "w0", "w0"), Slot("host", "w1-again", "w1"))
    assert (launch.job_id, launch.attempt) == ("a", 2)


def test_a_worker_that_came_back_is_reserved_for_one_job_alone():
    """While a gang still stops, its lost worker may be back and hold another job's rank."""
    story = Story(0)
    old = [Slot("host", f"w{n}", f"w{n}") for n in range(2)]
    new = Slot("host", "w0-again", "w0")
    story.workers(*old)
    story.running("a", 2, budgets=SOME, backoff_s=30.0)
    story.workers(old[1])
    story.wait(SETTLE_S)
    story.submit("b", 1, budgets=SOME, backoff_s=30.0)
    story.workers(old[1], new)
    assert [p.slot for p in story.job("b").placements] == [new]
    story.train("b")
    story.exit("b", 0, -9)
    story.wait(SETTLE_S)
    assert story.state("b") is JobState.RESTARTING
    story.exit("a", 1, -9)
    assert story.state("a") is JobState.RESTARTING
    assert story.job("b").reserved == {("host", "w0")}
    assert story.job("a").reserved == {("host", "w1")}


# --- elastic gangs


def test_a_job_that_may_be_smaller_goes_on_with_what_is_left():
    story = Story(4)
    story.running(num_ranks=4, allowed_ranks=(4, 3, 2), budgets=SOME, backoff_s=0.0)
    story.cluster(2)
    story.wait(SETTLE_S)
    story.all_exit()
    assert story.state() is JobState.RESTARTING  # a nanny may be bringing them back
    (launch,) = story.wait(FEWER_AFTER_S)
    assert len(launch.placements) == 2


def smaller(story):
    story.running(num_ranks=4, allowed_ranks=(4, 3, 2), budgets=SOME, backoff_s=0.0)
    story.cluster(2)
    story.wait(SETTLE_S)
    story.all_exit()
    story.wait(FEWER_AFTER_S)
    story.train()
    assert len(story.job().ranks) == 2


def test_it_grows_again_after_the_next_checkpoint():
    story = Story(4)
    smaller(story)
    assert story.cluster(4) == []
    (stop,) = story.rank("a", SAVED, attempt=2)
    assert stop == StopGang("a", 2, story.job().placements, grace_s=20.0)
    _, launch = story.all_exit(saved_step=51)
    assert len(launch.placements) == 4
    assert story.job().spent == {"worker_losses": 1}  # growing costs nothing


def test_it_does_not_grow_while_others_wait():
    story = Story(4)
    smaller(story)
    story.submit("b", 3)
    story.cluster(4)
    assert story.state("b") is JobState.PENDING
    assert story.rank("a", SAVED, attempt=2) == []


def test_a_new_job_waits_a_moment_for_all_its_ranks_and_then_takes_fewer():
    story = Story(2)
    assert story.submit("a", 4, allowed_ranks=(4, 2)) == []
    assert kinds(story.wait(FEWER_AFTER_S)) == [LaunchGang]
    assert len(story.job().ranks) == 2


# --- priorities and preemption


def test_a_higher_priority_goes_first_and_age_decides_among_equals():
    story = Story(1)
    story.running(num_ranks=1)
    for job_id, priority in (("low", -1), ("b", 0), ("c", 0)):
        story.submit(job_id, 1, priority=priority)
    order = []
    for job_id in ("a", "b", "c", "low"):
        order.append(job_id)
        story.train(job_id)
        story.finish(job_id, 0)
    assert [j for j in order if story.state(j) is JobState.SUCCEEDED] == order


def test_a_job_of_higher_priority_preempts_and_the_other_goes_on_afterwards():
    story = Story(2)
    story.running("low", budgets=SOME)
    (stop,) = story.submit("high", priority=5)
    assert stop == StopGang("low", 1, story.job("low").placements, grace_s=20.0)
    assert story.job("high").why_pending == "waits for low to stop"
    ended, launched = story.all_exit("low", saved_step=7)
    assert (ended, launched.job_id) == (EndGang("low", 1), "high")
    assert story.state("low") is JobState.PENDING
    assert story.job("low").restarts[0].reason == Reason.PREEMPTED
    story.train("high")
    for rank in range(2):
        story.finish("high", rank)
    assert story.state("low") is JobState.STARTING
    assert story.job("low").attempt == 2


def test_no_more_jobs_are_preempted_than_needed_the_lowest_and_youngest_first():
    story = Story(4)
    for job_id, priority in (("old", 0), ("young", 0), ("lowest", -3), ("peer", 2)):
        story.running(job_id, 1, priority=priority)
    stops = story.submit("high", 2, priority=2)
    assert [stop.job_id for stop in stops] == ["lowest", "young"]


def test_nobody_is_preempted_in_vain():
    story = Story(2)
    story.running("low")
    assert story.submit("huge", 3, priority=5) == []
    assert story.state("low") is JobState.RUNNING


def test_a_gang_whose_failure_is_being_looked_into_is_not_preempted():
    story = Story(2)
    story.running("low", budgets=SOME, backoff_s=0.0)
    story.exit("low", 1, -9)
    assert story.submit("high", priority=5) == []
    story.wait(SETTLE_S)
    story.exit("low", 0, -9)
    assert [restart.reason for restart in story.job("low").restarts] == [Reason.RANK_DIED]
    assert story.job("low").spent == {"rank_failures": 1}
    assert story.job("high").why_pending == "waits for low to stop"  # its second attempt


def test_equals_do_not_preempt_each_other():
    story = Story(2)
    story.running("a", priority=1)
    assert story.submit("b", priority=1) == []


def test_a_preempted_job_does_not_miss_its_start_deadline_in_the_queue():
    story = Story(2)
    story.running("low", budgets=SOME, start_s=60.0)
    story.submit("high", priority=5)
    story.all_exit("low", saved_step=7)
    story.train("high")
    story.wait(1000.0)
    assert story.state("low") is JobState.PENDING


def test_a_job_that_waits_for_its_next_attempt_gives_its_workers_to_a_higher_priority():
    story = Story(2)
    story.running("low", budgets=SOME, backoff_s=30.0)
    die(story, job_id="low")
    assert story.state("low") is JobState.RESTARTING
    (launch,) = story.submit("high", priority=5)
    assert launch.job_id == "high"
    assert story.state("low") is JobState.PENDING


def test_a_rank_that_fails_while_its_gang_is_preempted_costs_no_restart():
    story = Story(2)
    story.running("low", budgets=SOME)
    story.submit("high", priority=5)
    story.rank("low", RankFailed(1, "PeerLost", "rank 1: connection closed by peer"))
    story.all_exit("low")
    assert story.job("low").spent == {"preemptions": 1}


# --- notices to leave


def test_a_worker_that_has_to_leave_is_left_in_order_and_not_used_again():
    story = Story(3)
    story.running(budgets=SOME)
    (stop,) = story.happens(WorkerLeaving("w1", "SIGTERM"))
    assert (type(stop), stop.grace_s) == (StopGang, 20.0)
    _, launch = story.all_exit(saved_step=7)
    assert [p.slot.worker for p in launch.placements] == ["w0", "w2"]
    assert story.job().restarts[0].reason == Reason.PREEMPTED
    assert "w1 has to leave: SIGTERM" in story.job().restarts[0].message


def test_a_notice_to_one_rank_stops_its_gang_in_order():
    story = Story(2)
    story.running(budgets=SOME)
    (stop,) = story.rank("a", StopNoticed(1, "SIGTERM"))
    assert stop.grace_s == 20.0
    story.all_exit(saved_step=7)
    assert story.state() is JobState.STARTING
    assert story.job().spent == {"preemptions": 1}


def test_a_gang_that_finished_although_it_was_to_stop_has_succeeded():
    story = Story(2)
    story.running(budgets=SOME)
    story.happens(WorkerLeaving("w1", "SIGTERM"))
    for rank in range(2):
        story.finish("a", rank)
    assert story.state() is JobState.SUCCEEDED
    assert story.culprit() is None


# --- cancelling


def test_cancelling_gives_a_short_grace_and_ends_a_stop_for_another_reason():
    story = Story(2)
    story.running(budgets=SOME)
    story.happens(WorkerLeaving("w1", "SIGTERM"))
    (stop,) = story.happens(Cancel("a"))
    assert stop.grace_s == CANCEL_GRACE_S
    story.all_exit()
    assert story.state() is JobState.CANCELLED


# --- checkpoints by the clock


def test_checkpoints_are_asked_for_in_time_and_not_while_one_was_just_made():
    story = Story(2)
    story.running(checkpoint_every_s=60.0)
    assert story.wait(59.0) == []
    assert story.wait(1.0) == [CheckpointGang("a", 1, story.job().placements)]
    story.wait(30.0)
    story.rank("a", SAVED)
    assert story.wait(59.0) == []
    assert kinds(story.wait(1.0)) == [CheckpointGang]


# --- the watchdog


def hang(story, waiting, silent=()):
    """Ranks made progress until now; then they only tell what they wait for."""
    for rank in waiting:
        story.beat("a", rank, 9, waiting[rank])
    answers = []
    for _ in range(10):
        answers += story.wait(1.0)
        for rank in set(waiting) - set(silent):
            answers += story.beat("a", rank, 9, waiting[rank])
    return answers


def settle(story, states):
    for rank, state in states.items():
        story.rank("a", StacksTaken(rank, state, f"stack of {rank}"))
    story.wait(STACKS_S)


def test_a_stopped_process_is_found_and_named():
    story = Story(2)
    story.running(progress_s=10.0)
    assert kinds(hang(story, {0: "peers", 1: "peers"}, silent=[1])) == [TakeStacks]
    story.rank("a", StacksTaken(1, "T (stopped)", ""))
    assert story.state() is JobState.RUNNING
    (stop,) = story.wait(STACKS_S)
    assert stop.grace_s == 0.0
    assert story.culprit().rank == 1
    assert story.culprit().reason == Reason.COLLECTIVE_TIMEOUT
    assert story.culprit().message == (
        "no progress for 10 s: rank 1 (pid 1001 on w1) has not for 11 s been heard of; "
        "its process is T (stopped)\nrank 0 waited for it"
    )


def test_a_stuck_reader_is_the_culprit_and_not_those_that_wait_for_its_rank():
    story = Story(3)
    story.running(num_ranks=3, progress_s=10.0)
    hang(story, {0: "peers", 1: "reader", 2: "peers"})
    settle(story, {0: "S (sleeping)", 1: "D (disk sleep)", 2: "S (sleeping)"})
    assert story.culprit().rank == 1
    assert story.culprit().traceback == "stack of 1"
    assert "waits for its reader" in story.culprit().message
    assert "rank 0, 2 waited for it" in story.culprit().message


def test_the_rank_that_did_not_arrive_is_the_culprit_where_all_wait_for_peers():
    story = Story(3)
    story.running(num_ranks=3, progress_s=10.0)
    for rank, progress in ((0, 9), (1, 8), (2, 9)):
        story.beat("a", rank, progress, "peers")
    for _ in range(10):
        story.wait(1.0)
        for rank, progress in ((0, 9), (1, 8), (2, 9)):
            story.beat("a", rank, progress, "peers")
    settle(story, dict.fromkeys(range(3), "S (sleeping)"))
    assert story.culprit().rank == 1
    assert "did not arrive" in story.culprit().message


def test_where_all_wait_at_the_same_place_the_network_is_suspected():
    story = Story(2)
    story.running(progress_s=10.0)
    hang(story, {0: "peers", 1: "peers"})
    settle(story, dict.fromkeys(range(2), "S (sleeping)"))
    assert story.culprit().rank is None
    assert "is the network between them cut?" in story.culprit().message


def test_progress_after_all_calls_the_watchdog_off():
    story = Story(2)
    story.running(progress_s=10.0)
    assert kinds(hang(story, {0: "peers", 1: "reader"})) == [TakeStacks]
    story.beat("a", 1, 10)
    story.wait(STACKS_S)
    story.wait(5.0)
    assert story.state() is JobState.RUNNING


def test_one_rank_that_makes_progress_is_enough():
    story = Story(2)
    story.running(progress_s=10.0)
    for progress in range(30):
        story.beat("a", 0, progress)
        assert story.wait(1.0) == []


def test_a_rank_that_waits_for_its_storage_is_not_hung_as_long_as_it_says_so():
    story = Story(2)
    story.running(progress_s=10.0)
    for _ in range(3):
        assert not hang(story, {0: "peers", 1: "storage"})
    assert story.state() is JobState.RUNNING
    view = show(story.job(), "a", Collector(), None)
    assert view.why_pending == "rank 1 waits for storage that does not answer; see the rank's log"
    assert kinds(hang(story, {0: "peers", 1: "reader"})) == [TakeStacks]
    assert show(story.job(), "a", Collector(), None).why_pending == ""


def test_storage_that_does_not_answer_ends_the_attempt_and_not_the_job():
    story = Story(2)
    story.running(budgets=SOME, backoff_s=0.0)
    story.rank("a", RankFailed(1, "StorageUnavailable", "why"))
    story.wait(SETTLE_S)
    story.all_exit()
    assert story.state() is JobState.STARTING
    assert story.job().spent == {"rank_failures": 1}


def test_a_hung_job_is_started_again():
    story = Story(2)
    story.running(progress_s=10.0, budgets=SOME, backoff_s=0.0)
    hang(story, {0: "peers", 1: "peers"}, silent=[1])
    settle(story, {0: "S (sleeping)", 1: "T (stopped)"})
    story.all_exit()
    assert story.state() is JobState.STARTING
    assert story.job().spent == {"rank_failures": 1}


# --- hosts


def test_a_host_that_failed_twice_is_avoided_for_a_while_if_there_are_others():
    story = Story(0)
    good, bad = Slot("good", "g0", "g0"), Slot("bad", "b0", "b0")
    story.workers(bad)
    story.running(num_ranks=1, budgets=Budgets(rank_failures=9), backoff_s=0.0)
    die(story, rank=0)
    story.train()
    story.workers(bad, good)
    (_, launch) = die(story, rank=0)
    assert launch.placements[0].slot == good
    story.submit("b", 1, start_s=1e6)
    assert story.state("b") is JobState.PENDING
    assert "avoided for now: bad (2 failures, for another" in story.job("b").why_pending
    story.wait(AVOID_S)
    assert story.state("b") is JobState.STARTING


def test_a_host_that_fails_is_better_than_none():
    story = Story(1)
    story.running(num_ranks=1, budgets=Budgets(rank_failures=9), backoff_s=0.0)
    for _ in range(4):
        die(story, rank=0)
        assert story.state() is JobState.STARTING
        story.train()


def test_a_gang_in_which_one_rank_is_not_ready_is_not_running():
    story = Story(2)
    story.submit("a", budgets=SOME)
    story.rank("a", TrainingStarted(0, 10, 100, 100, 5))
    assert story.state() is JobState.STARTING


def test_jobs_whose_reservations_cross_on_the_last_good_host_do_not_wait_for_each_other():
    x, y = ([Slot(host, f"tcp://{host}:{n}", f"{host}{n}") for n in range(3)] for host in "xy")
    lifecycle = Lifecycle()
    patient = {"budgets": Budgets(None, None, None), "backoff_s": 0.0}
    lifecycle.handle(WorkersChanged(frozenset({Slot("x", "tcp://x:10", "x1"), x[2], y[2]})), 0.0)
    lifecycle.handle(Submit("a", 3, 1e9, **patient), 0.0)
    lifecycle.handle(Submit("b", 3, 1e9, **patient), 0.0)
    lifecycle.handle(WorkersChanged(frozenset({*x, *y})), 0.0)
    lifecycle.handle(WorkersChanged(frozenset()), 1.0)
    for now_s in (2.0, 20.0):
        lifecycle.handle(Tick(), now_s)
    assert [job.state for job in lifecycle.jobs.values()] == [JobState.RESTARTING] * 2
    lifecycle.handle(WorkersChanged(frozenset({*x, *y})), 21.0)
    assert "avoided for now: x" in lifecycle.jobs["b"].why_pending
    assert lifecycle.jobs["a"].state is JobState.STARTING
