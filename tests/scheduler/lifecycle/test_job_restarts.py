"""Jobs whose attempt ended early: restarts, budgets, preemption, hangs and avoided hosts."""

import pytest
from job_story import Story, kinds

from distrain.jobs.assignment import Slot
from distrain.jobs.events import CheckpointSaved, RankFailed, StacksTaken, StepsDone, StopNoticed
from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.runs.records.collector import Collector
from distrain.scheduler.job_list import show
from distrain.scheduler.lifecycle.failed_attempt import LOSSES_S
from distrain.scheduler.lifecycle.lifecycle import GIVE_UP_S, SETTLE_S
from distrain.scheduler.lifecycle.messages import (
    Cancel,
    CheckpointGang,
    EndGang,
    LaunchGang,
    StopGang,
    TakeStacks,
    WorkerLeaving,
)
from distrain.scheduler.lifecycle.queue import AVOID_S, FEWER_AFTER_S
from distrain.scheduler.lifecycle.watchdog import STACKS_S

SOME = (2, 1, 1)
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
    moves = [(move.old, move.attempt, move.reason) for move in story.moves[2:5]]
    assert moves == [
        (JobState.RUNNING, 1, Reason.RANK_DIED),
        (JobState.STOPPING, 1, Reason.RANK_DIED),
        (JobState.RESTARTING, 2, ""),
    ]
    assert all(move.why.startswith("RankDied: rank 1 ") for move in story.moves[2:4])
    for rank in range(2):
        story.finish("a", rank, attempt=2)
    assert story.state() is JobState.SUCCEEDED


def restart_after(story, step, end):
    """Report a step, end the attempt, and return how long the job pauses and what it says."""
    attempt = story.job().attempt
    story.rank("a", StepsDone(0, 0, step, 1.0, {}, {}, 0.1), attempt=attempt)
    end(story)
    begun_s, why = story.now_s, story.job().why_pending
    while story.state() is JobState.RESTARTING:
        story.wait(1.0)
    story.train()
    return story.now_s - begun_s, why


def lose_a_worker(story):
    attempt = story.job().attempt
    story.cluster(1)
    for rank in range(2):
        story.exit("a", rank, -9, attempt=attempt)
    story.wait(SETTLE_S)
    story.cluster(2)  # its nanny has restarted it


@pytest.mark.parametrize(
    ("end", "steps", "pauses"),
    [
        (die, (0, 0, 0, 70, 70, 80), [4.0, 8.0, 16.0, 4.0, 8.0, 4.0]),
        (lose_a_worker, (10, 20, 30, 40, 50, 60), [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
    ],
    ids=["no progress", "losses of workers in a short time"],
)
def test_pauses_before_attempts_grow(end, steps, pauses, wording):
    story = Story(2)
    story.running(budgets=(99, 99, None), backoff_s=4.0)
    told = [restart_after(story, step, end) for step in steps]
    assert [pause_s for pause_s, _ in told] == pauses
    wording(told[0][1])
    wording(told[2][1])
    story.wait(LOSSES_S)
    assert restart_after(story, 90, end)[0] == 4.0  # after a quiet time, and further


REASONS = {
    "rank_failures": (
        Reason.RANK_FAILED, Reason.RANK_DIED, Reason.PEER_LOST, Reason.STORAGE_UNAVAILABLE,
        Reason.COLLECTIVE_TIMEOUT, Reason.NO_PROGRESS,
    ),
    "worker_losses": (Reason.WORKER_LOST,),
    "preemptions": (Reason.PREEMPTED,),
    "": (
        Reason.DATA_ERROR, Reason.DEADLINE_EXCEEDED, Reason.INVALID_SPEC, Reason.NON_FINITE_LOSS,
        Reason.OUT_OF_MEMORY, Reason.OUTPUT_ERROR, Reason.QUEUE_DEADLINE_EXCEEDED,
        Reason.START_DEADLINE_EXCEEDED, Reason.COORDINATOR_LOST,
    ),
}  # fmt: skip
"""Reasons by the budget that pays for another attempt; "" for those that it would meet again."""


@pytest.mark.parametrize("budget", REASONS)
def test_each_reason_is_paid_by_its_budget_until_that_is_spent(budget, wording):
    for reason in REASONS[budget]:
        story = Story(2)
        story.running(budgets=(1, 1, 1), backoff_s=0.0)
        for attempt in (1, 2) if budget else (1,):
            assert not story.state().is_final, reason
            story.rank("a", RankFailed(1, reason, "why"), attempt)
            story.wait(SETTLE_S)
            story.all_exit()
            if story.state() is JobState.STARTING:
                story.train()
        assert (story.state(), story.culprit().reason) == (JobState.FAILED, reason)
        assert story.job().spent == ({budget: 1} if budget else {}), reason
    wording(story.culprit().message)


def test_deadlines_of_a_restart_are_its_own(wording):
    ends = []
    for workers in (1, 2):
        story = Story(2)
        story.running(budgets=SOME, backoff_s=0.0, start_s=60.0)
        story.wait(1000.0)
        story.cluster(1)
        story.wait(SETTLE_S)
        story.all_exit()
        assert story.job().why_pending == "needs 2 workers, the cluster has 1"
        story.wait(50.0)
        story.cluster(workers)  # two: it is placed now, and has 60 s from here
        story.wait(9.0 if workers == 1 else 59.0)
        assert story.state() is (JobState.RESTARTING if workers == 1 else JobState.STARTING)
        ends.append(kinds(story.wait(1.1)))
        assert story.culprit().reason == Reason.START_DEADLINE_EXCEEDED
        wording(story.culprit().message)
    assert ends == [[], [StopGang]]


def test_a_worker_whose_rank_never_reported_its_end_is_not_used_until_it_does():
    story = Story(3)
    (launch,) = story.submit("a", budgets=SOME, backoff_s=0.0, first_attempt=5)
    assert launch.attempt == 5, "a resumed job counts its attempts on"
    story.train()
    story.exit("a", 0, -9, attempt=5)
    story.wait(SETTLE_S)
    assert story.wait(GIVE_UP_S - 0.1) == []
    ended, launched = story.wait(0.1)
    assert ended == EndGang("a", 5)
    assert [p.slot.worker for p in launched.placements] == ["w0", "w2"]
    story.submit("b", 1)
    assert story.state("b") is JobState.PENDING
    assert kinds(story.exit("a", 1, -9, attempt=5)) == [LaunchGang]


# --- reserved workers


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


# --- elastic gangs


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "others wait"])
def test_an_elastic_job_shrinks_after_a_pause_and_grows_at_a_checkpoint(others):
    story = Story(4)
    story.running(num_ranks=4, min_ranks=2, budgets=SOME, backoff_s=0.0)
    story.cluster(2)
    story.wait(SETTLE_S)
    story.all_exit()
    assert story.state() is JobState.RESTARTING  # a nanny may be bringing them back
    (launch,) = story.wait(FEWER_AFTER_S)
    assert len(launch.placements) == 2
    story.train()
    if others:
        story.submit("b", others)
    assert story.cluster(4) == []
    stops = story.rank("a", SAVED, attempt=2)
    if others:
        assert stops == []
        return
    assert stops == [StopGang("a", 2, story.job().placements, grace_s=20.0)]
    _, launch = story.all_exit(saved_step=51)
    assert len(launch.placements) == 4
    assert story.job().spent == {"worker_losses": 1}  # growing costs nothing


def test_a_new_job_waits_a_moment_for_all_its_ranks_and_then_takes_fewer():
    story = Story(2)
    assert story.submit("a", 4, min_ranks=2, lanes=4) == []
    assert "starts with 2 " in story.job().why_pending
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
    assert story.submit("huge", 5, priority=2) == [], "in vain"
    story.happens(Cancel("huge"))
    assert story.submit("equal", 1, priority=-3) == []
    stops = story.submit("high", 2, priority=2)
    assert [stop.job_id for stop in stops] == ["lowest", "young"]


def test_a_job_whose_workers_would_not_be_used_is_not_preempted():
    story = Story(3)
    story.running("small", 1, priority=-3)
    story.running("large", 2)
    stops = story.submit("high", 2, priority=2)
    assert [stop.job_id for stop in stops] == ["large"], "it has to stop, and is enough"


def test_a_job_that_may_have_fewer_ranks_preempts_for_these_after_a_while():
    story = Story(3)
    story.running("low", 3)
    assert story.submit("high", 4, min_ranks=2, priority=5) == [], "it may still get all"
    (stop,) = story.wait(FEWER_AFTER_S)
    assert stop.job_id == "low"
    assert story.wait(0.0) == []
    _, launch = story.all_exit("low", saved_step=7)
    assert (launch.job_id, len(launch.placements)) == ("high", 3)


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


def test_a_job_that_waits_for_its_next_attempt_gives_its_workers_to_a_higher_priority():
    story = Story(2)
    story.running("low", budgets=SOME, backoff_s=30.0)
    die(story, job_id="low")
    assert story.state("low") is JobState.RESTARTING
    (launch,) = story.submit("high", priority=5)
    assert launch.job_id == "high"
    assert story.state("low") is JobState.PENDING


# --- notices to leave


@pytest.mark.parametrize("whole_worker", [True, False], ids=["worker", "rank"])
def test_a_notice_to_leave_stops_the_gang_in_order(whole_worker, wording):
    story = Story(3)
    story.running(budgets=SOME)
    if whole_worker:
        (stop,) = story.happens(WorkerLeaving("w1", "SIGTERM"))
    else:
        (stop,) = story.rank("a", StopNoticed(1, "SIGTERM"))
    assert (type(stop), stop.grace_s) == (StopGang, 20.0)
    _, launch = story.all_exit(saved_step=7)
    unused = "w2" if not whole_worker else "w1"
    assert unused not in [p.slot.worker for p in launch.placements]
    assert story.job().spent == {"preemptions": 1}
    wording(story.job().restarts[0].message)


def test_a_gang_that_finished_although_it_was_to_stop_has_succeeded():
    story = Story(2)
    story.running(budgets=SOME)
    story.happens(WorkerLeaving("w1", "SIGTERM"))
    for rank in range(2):
        story.finish("a", rank)
    assert story.state() is JobState.SUCCEEDED
    assert story.culprit() is None


# --- checkpoints by the clock


def test_checkpoints_are_asked_for_in_time_and_not_while_one_was_just_made():
    story = Story(2)
    story.running(every_s=60.0)
    assert story.wait(59.0) == []
    assert story.wait(1.0) == [CheckpointGang("a", 1, story.job().placements)]
    story.wait(30.0)
    story.rank("a", SAVED)
    assert story.wait(59.0) == []
    assert kinds(story.wait(1.0)) == [CheckpointGang]


# --- the watchdog


def hang(story, waiting, silent=(), behind=()):
    """Ranks made progress until now; then they only report what they wait for."""
    answers = []
    for second in range(11):
        answers += story.wait(1.0) if second else []
        for rank in set(waiting) - set(silent if second else ()):
            answers += story.beat("a", rank, 8 if rank in behind else 9, waiting[rank])
    return answers


@pytest.mark.parametrize(
    ("waiting", "silent", "behind", "states", "culprit"),
    [
        (["peers", "peers"], [1], [], {1: "T (stopped)"}, 1),
        (["peers", "reader", "peers"], [], [], {0: "S", 1: "D (disk sleep)", 2: "S"}, 1),
        (["peers"] * 3, [], [1], dict.fromkeys(range(3), "S"), 1),
        (["peers"] * 2, [], [], dict.fromkeys(range(2), "S"), None),
    ],
    ids=["stopped process", "stuck reader", "did not arrive", "network"],
)
def test_the_rank_that_hangs_its_gang_is_named(waiting, silent, behind, states, culprit, wording):
    story = Story(3)
    story.running(num_ranks=len(waiting), progress_s=10.0)
    assert kinds(hang(story, dict(enumerate(waiting)), silent, behind)) == [TakeStacks]
    answers = []
    for rank, state in states.items():
        answers += story.rank("a", StacksTaken(rank, state, f"stack of {rank}"))
    (stop,) = answers + story.wait(STACKS_S)
    assert stop.grace_s == 0.0
    found = story.culprit()
    assert (found.rank, found.reason) == (culprit, Reason.COLLECTIVE_TIMEOUT)
    assert culprit is None or found.traceback == f"stack of {culprit}"
    wording(found.message)


def test_progress_after_all_calls_the_watchdog_off():
    story = Story(2)
    story.running(progress_s=10.0)
    for progress in range(30):  # one rank's is enough
        story.beat("a", 0, progress)
        assert story.wait(1.0) == []
    assert kinds(hang(story, {0: "peers", 1: "reader"})) == [TakeStacks]
    story.beat("a", 1, 10)
    story.wait(STACKS_S)
    story.wait(5.0)
    assert story.state() is JobState.RUNNING


def test_a_rank_that_waits_for_its_storage_is_not_hung_as_long_as_it_says_so(wording):
    story = Story(2)
    story.running(progress_s=10.0)
    for _ in range(3):
        assert not hang(story, {0: "peers", 1: "storage"})
    assert story.state() is JobState.RUNNING
    wording(show(story.job(), Collector(), (False, ""), None).why_pending)
    assert kinds(hang(story, {0: "peers", 1: "reader"})) == [TakeStacks]
    assert show(story.job(), Collector(), (False, ""), None).why_pending == ""


# --- hosts


def test_a_host_that_failed_twice_is_avoided_for_a_while_if_there_are_others(wording):
    story = Story(0)
    good, bad = Slot("good", "g0", "g0"), Slot("bad", "b0", "b0")
    story.workers(bad)
    story.running(num_ranks=1, budgets=(9, 0, None), backoff_s=0.0)
    die(story, rank=0)
    story.train()
    for _ in range(2):
        die(story, rank=0)
        assert story.state() is JobState.STARTING, "it is better than none"
        story.train()
    story.workers(bad, good)
    (_, launch) = die(story, rank=0)
    assert launch.placements[0].slot == good
    story.submit("b", 1, start_s=1e6)
    assert story.state("b") is JobState.PENDING
    wording(story.job("b").why_pending)
    story.wait(AVOID_S)
    assert story.state("b") is JobState.STARTING


@pytest.mark.parametrize("reason", [Reason.DATA_ERROR, Reason.NON_FINITE_LOSS, Reason.PEER_LOST])
def test_no_host_is_avoided_for_what_is_not_its_fault(reason):
    story = Story(1)
    for job_id in ("a", "b"):
        story.running(job_id, 1)
        story.rank(job_id, RankFailed(0, reason, "as it happens"))
        story.wait(SETTLE_S)
        story.all_exit(job_id)
        assert story.state(job_id) is JobState.FAILED
    assert story.lifecycle.host_failures.avoided(story.now_s) == {}
