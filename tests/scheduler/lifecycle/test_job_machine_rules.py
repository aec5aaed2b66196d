"""Anything may happen to the lifecycle of jobs at any time; what must hold always holds."""

from collections import Counter
from dataclasses import replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from job_story import REPORTED_BY_RANKS, submission
from lifecycle_invariants import validate

from distrain.jobs.assignment import Slot
from distrain.jobs.events import (
    CheckpointSaved,
    CheckpointTrouble,
    EvaluationDone,
    Heartbeat,
    ModelSaved,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    RankStopped,
    StacksTaken,
    StepsDone,
    StopNoticed,
    TrainingStarted,
)
from distrain.jobs.reasons import Reason
from distrain.jobs.states import TRANSITIONS, JobState
from distrain.scheduler.lifecycle.failed_attempt import LONGEST_BACKOFF_S
from distrain.scheduler.lifecycle.lifecycle import GIVE_UP_S, LINGER_S, SETTLE_S, Lifecycle
from distrain.scheduler.lifecycle.messages import (
    Cancel,
    ChangePriority,
    CheckpointGang,
    EndGang,
    LaunchFailed,
    LaunchGang,
    Move,
    Reported,
    StopGang,
    TakeStacks,
    Tick,
    WorkerLeaving,
    WorkersChanged,
)

JOBS = st.sampled_from("abcde")
SLOTS = [Slot(host, f"tcp://{host}:{port}", f"{host}{port}") for host in "xy" for port in range(3)]
AGAIN = [replace(slot, worker=f"{slot.worker}0") for slot in SLOTS]
"""The same workers at other addresses, as when their nannies restart them."""
CLUSTERS = st.tuples(
    *(st.sampled_from([None, old, old, new]) for old, new in zip(SLOTS, AGAIN, strict=True))
)
REPORTED = st.sampled_from(sorted(REPORTED_BY_RANKS))
RANKS = st.integers(0, 4)
SECONDS = st.sampled_from([0.0, 0.1, SETTLE_S, 1.0, GIVE_UP_S, LINGER_S, 61.0])
STEPS = st.integers(0, 9)
GRACE_S = 8.0
EVENTS = st.one_of(
    st.builds(RankStarted, RANKS, st.just(1), st.just("x"), st.just("cpu")),
    st.builds(TrainingStarted, RANKS, *[st.just(1)] * 4),
    st.builds(Heartbeat, RANKS, STEPS, STEPS, st.just("exchange"), st.sampled_from(["", "peers"])),
    st.builds(StepsDone, RANKS, st.just(0), STEPS, *[st.just(x) for x in (1.0, {}, {}, 0.1)]),
    st.builds(EvaluationDone, RANKS, *[st.just(x) for x in (0, 1, 1.0, {})]),
    st.builds(CheckpointSaved, RANKS, STEPS, *[st.just(x) for x in ("there", 1, 0.1, 0.1)]),
    st.builds(CheckpointTrouble, RANKS, st.just("disk full")),
    st.builds(ModelSaved, RANKS, st.just("model")),
    st.builds(StopNoticed, RANKS, st.just("SIGTERM")),
    st.builds(RankStopped, RANKS, STEPS, st.booleans()),
    st.builds(StacksTaken, RANKS, st.just("S (sleeping)"), st.just("here")),
    st.builds(RankFinished, RANKS, *[st.just(x) for x in (1, 1, 1.0, {})]),
    st.builds(
        RankFailed,
        RANKS,
        REPORTED,
        st.just("why"),
        st.none() | st.integers(0, 9),
    ),
    st.builds(RankExited, RANKS, st.sampled_from([0, 1, -9, -15, -44, -99]), st.booleans()),
)
BUDGET = st.none() | st.integers(0, 2)
BUDGETS = st.tuples(BUDGET, BUDGET, BUDGET)


class AnythingHappens(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.lifecycle = Lifecycle()
        self.now_s = 0.0
        self.launched, self.ended = {}, set()
        self.stopped = Counter()
        self.running_ranks = {}  # what really runs, as the shell would have it
        self.told = {}  # each job's state by the moves in the answers

    def tell(self, stimulus):
        answer = self.lifecycle.handle(stimulus, self.now_s)
        validate(self.lifecycle)
        for instruction in answer:
            self.judge(instruction)
        for job_id, job in self.lifecycle.jobs.items():
            assert self.told.get(job_id, JobState.PENDING) is job.state, "a move was not told"

    def judge(self, instruction):
        if isinstance(instruction, Move):
            assert instruction.old is self.told.get(instruction.job_id, JobState.PENDING)
            assert instruction.new in TRANSITIONS[instruction.old]
            assert instruction.at_s == self.now_s
            self.told[instruction.job_id] = instruction.new
            return
        gang = (instruction.job_id, instruction.attempt)
        job = self.lifecycle.jobs[instruction.job_id]
        match instruction:
            case LaunchGang():
                assert gang not in self.launched
                slots = [p.slot for p in instruction.placements]
                assert set(slots) <= self.lifecycle.usable_slots
                assert not set(slots) & set(self.running_ranks), "a slot is booked twice"
                assert len(slots) in job.allowed_ranks
                self.launched[gang] = instruction.placements
                self.running_ranks |= {slot: (*gang, rank) for rank, slot in enumerate(slots)}
            case StopGang():
                assert gang in self.launched.keys() - self.ended
                assert instruction.placements == self.launched[gang]
                self.stopped[gang] += 1
            case CheckpointGang() | TakeStacks():
                assert gang in self.launched.keys() - self.ended
                assert not self.stopped[gang]
            case EndGang():
                assert gang in self.launched.keys() - self.ended
                assert self.stopped[gang] or job.state is JobState.SUCCEEDED
                self.ended.add(gang)

    def exits(self, job_id, attempt, rank):
        who = (job_id, attempt, rank)
        self.running_ranks = {s: w for s, w in self.running_ranks.items() if w != who}

    @rule(
        job=JOBS,
        ranks=st.integers(1, 4),
        fewest=st.integers(1, 4),
        start_s=st.sampled_from([0.0, 61.0, 1e9, 1e9, 1e9]),
        total_s=st.none() | st.sampled_from([0.0, 61.0, 1e9]),
        priority=st.integers(-1, 1),
        budgets=BUDGETS,
        backoff_s=st.sampled_from([0.0, 1.0, 40.0]),
        progress_s=st.none() | st.just(5.0),
        every_s=st.none() | st.just(3.0),
    )
    def submit(self, job, ranks, fewest, **more):
        fewest = min(fewest, ranks)
        self.tell(submission(job, ranks, min_ranks=fewest, stop_grace_s=GRACE_S, **more))

    @rule(job=JOBS, ranks=st.integers(1, 2), priority=st.integers(0, 1), budgets=BUDGETS)
    def submit_without_haste(self, job, ranks, priority, budgets):
        more = {"start_s": 1e9, "stop_grace_s": GRACE_S}
        self.tell(submission(job, ranks, priority=priority, budgets=budgets, **more))

    @rule(job=JOBS, grace_s=st.none() | st.sampled_from([0.0, 1.0, GRACE_S]))
    def cancel(self, job, grace_s):
        self.tell(Cancel(job, grace_s=grace_s))

    @rule(job=JOBS, priority=st.integers(-2, 2))
    def change_priority(self, job, priority):
        known = self.lifecycle.jobs.get(job)
        before = known and (known.state, known.request.priority)
        self.tell(ChangePriority(job, priority))
        if before:
            state, old = before
            assert known.request.priority == (priority if state.waits else old)

    @rule(cluster=CLUSTERS)
    def workers_change(self, cluster):
        slots = frozenset(slot for slot in cluster if slot is not None)
        self.running_ranks = {s: w for s, w in self.running_ranks.items() if s in slots}
        self.tell(WorkersChanged(slots))

    @rule()
    def all_workers_come(self):
        self.running_ranks = {s: w for s, w in self.running_ranks.items() if s in SLOTS}
        self.tell(WorkersChanged(frozenset(SLOTS)))

    @rule(slot=st.sampled_from(SLOTS))
    def a_worker_is_told_to_leave(self, slot):
        self.tell(WorkerLeaving(slot.worker, "SIGTERM"))

    @rule(job=JOBS, behind=st.sampled_from([-1, 0, 0, 0, 1, 2]), event=EVENTS)
    def rank_reports(self, job, behind, event):
        attempt = self.attempt_of(job) - behind
        if isinstance(event, RankExited):
            self.exits(job, attempt, event.rank)
        self.tell(Reported(job, attempt, event))

    @rule(job=JOBS, kind=st.sampled_from(["ready", "ready", "finished", "exited", "beat"]))
    def all_ranks_report(self, job, kind):
        attempt = self.attempt_of(job)
        for rank in list(self.lifecycle.jobs[job].ranks) if job in self.lifecycle.jobs else []:
            event = {
                "ready": TrainingStarted(rank, 1, 1, 1, 1),
                "finished": RankFinished(rank, 1, 1, 1.0, {}),
                "exited": RankExited(rank, 0, False),
                "beat": Heartbeat(rank, 3, int(self.now_s), "exchange", "peers"),
            }[kind]
            if kind == "exited":
                self.exits(job, attempt, rank)
            self.tell(Reported(job, attempt, event))

    @rule(job=JOBS)
    def launch_fails(self, job):
        attempt = self.attempt_of(job)
        for rank in range(4):
            self.exits(job, attempt, rank)
        self.tell(LaunchFailed(job, attempt, "no store"))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        self.now_s += seconds
        self.tell(Tick())

    @precondition(lambda self: any(j.failures for j in self.live()))
    @rule()
    def a_failed_attempt_ends_in_bounded_time(self):
        doomed = [(job, job.attempt) for job in self.live() if job.failures]
        for seconds in (SETTLE_S, GRACE_S + GIVE_UP_S):
            self.time_passes(seconds)
        assert all((job.job_id, attempt) in self.ended for job, attempt in doomed)

    @precondition(lambda self: any(j.is_finished and not j.failures for j in self.live()))
    @rule()
    def a_finished_gang_succeeds_in_bounded_time(self):
        done = [job for job in self.live() if job.is_finished and not job.failures]
        for seconds in (LINGER_S, GRACE_S + GIVE_UP_S):
            self.time_passes(seconds)
        assert all(job.state is JobState.SUCCEEDED for job in done)

    @precondition(lambda self: any(j.state is JobState.STOPPING for j in self.live()))
    @rule()
    def nobody_stops_for_ever(self):
        stopping = [(job, job.attempt) for job in self.live() if job.state is JobState.STOPPING]
        self.time_passes(GRACE_S + GIVE_UP_S)
        assert all((job.job_id, attempt) in self.ended for job, attempt in stopping)

    @precondition(lambda self: self.gangs(JobState.STARTING))
    @rule()
    def gangs_begin_to_train(self):
        for job in self.gangs(JobState.STARTING):
            for rank in list(job.ranks):
                self.tell(Reported(job.job_id, job.attempt, TrainingStarted(rank, 1, 1, 1, 1)))

    @precondition(lambda self: self.gangs(JobState.RUNNING))
    @rule(
        choice=st.integers(0, 99),
        rank=st.integers(0, 3),
        event=st.one_of(
            st.builds(RankFailed, st.just(0), REPORTED, st.just("why")),
            st.builds(RankExited, st.just(0), st.sampled_from([1, -9]), st.just(False)),
            st.builds(StopNoticed, st.just(0), st.just("SIGTERM")),
            st.builds(CheckpointSaved, st.just(0), STEPS, *map(st.just, ("there", 1, 0.1, 0.1))),
            st.builds(StepsDone, st.just(0), st.just(0), STEPS, *map(st.just, (1.0, {}, {}, 0.1))),
        ),
    )
    def something_happens_to_a_running_gang(self, choice, rank, event):
        gangs = self.gangs(JobState.RUNNING)
        job = gangs[choice % len(gangs)]
        event = replace(event, rank=rank % len(job.ranks))
        if isinstance(event, RankExited):
            self.exits(job.job_id, job.attempt, event.rank)
        self.tell(Reported(job.job_id, job.attempt, event))

    @precondition(lambda self: self.gangs(JobState.STOPPING))
    @rule(choice=st.integers(0, 99))
    def a_stopped_gang_ends(self, choice):
        gangs = self.gangs(JobState.STOPPING)
        job = gangs[choice % len(gangs)]
        attempt = job.attempt
        for rank in list(job.ranks):
            self.exits(job.job_id, attempt, rank)
            self.tell(Reported(job.job_id, attempt, RankExited(rank, 0, True)))

    def gangs(self, state):
        return [job for job in self.live() if job.state is state]

    def somebody_starts_where_nobody_runs(self):
        """No job is lost: with fresh workers and time, one of those that wait starts or ends."""
        self.tell(WorkersChanged(frozenset()))
        self.time_passes(SETTLE_S)
        self.time_passes(GRACE_S + GIVE_UP_S)
        waiting = [job for job in self.live() if not job.ranks]
        self.running_ranks.clear()
        self.tell(WorkersChanged(frozenset(SLOTS)))
        self.time_passes(LONGEST_BACKOFF_S)
        assert not waiting or any(job.ranks or job.state.is_final for job in waiting)

    def attempt_of(self, job):
        return self.lifecycle.jobs[job].attempt if job in self.lifecycle.jobs else 1

    def live(self):
        return [job for job in self.lifecycle.jobs.values() if not job.state.is_final]

    @invariant()
    def nobody_waits_without_a_reason(self):
        for job in self.live():
            waits = job.state in (JobState.PENDING, JobState.RESTARTING)
            assert bool(job.why_pending) == waits

    @invariant()
    def every_end_but_success_has_a_reason(self):
        words = set(Reason)
        for job in self.lifecycle.jobs.values():
            if job.state in (JobState.FAILED, JobState.CANCELLED):
                assert job.culprit is not None
                assert job.culprit.reason in words
                assert job.culprit.message

    @invariant()
    def each_attempt_but_the_last_is_accounted_for(self):
        for job in self.lifecycle.jobs.values():
            earlier = [restart.attempt for restart in job.restarts]
            assert earlier == list(range(1, len(earlier) + 1))
            assert job.attempt - len(earlier) in (0, 1)

    def teardown(self):
        """No job is lost; and when everybody gives up, everything is let go of."""
        self.somebody_starts_where_nobody_runs()
        for job_id in list(self.lifecycle.jobs):
            self.tell(Cancel(job_id))
        self.time_passes(GRACE_S + GIVE_UP_S)
        assert not self.live()
        assert self.ended == self.launched.keys()


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(deadline=None, max_examples=60, stateful_step_count=50)
