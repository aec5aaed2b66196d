"""Anything may happen to the job machine at any time; what must hold always holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distrain.coordinator.machine import (
    GIVE_UP_S,
    LINGER_S,
    SETTLE_S,
    Cancel,
    EndGang,
    LaunchFailed,
    LaunchGang,
    Machine,
    Reported,
    StopGang,
    Submit,
    Tick,
    WorkersChanged,
)
from distrain.coordinator.states import TRANSITIONS, JobState
from distrain.events import (
    FAILURE_REASONS,
    EvaluationDone,
    ModelSaved,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    StepsDone,
    TrainingStarted,
)
from distrain.placement import Slot

JOBS = st.sampled_from("abcde")
SLOTS = [Slot(host, f"tcp://{host}:{port}") for host in "xy" for port in range(3)]
RANKS = st.integers(0, 4)
SECONDS = st.sampled_from([0.0, 0.1, SETTLE_S, 1.0, GIVE_UP_S, LINGER_S, 61.0])
EVENTS = st.one_of(
    st.builds(RankStarted, RANKS, st.just(1), st.just("x"), st.just("cpu")),
    st.builds(TrainingStarted, RANKS, *[st.just(1)] * 4),
    st.builds(StepsDone, RANKS, st.just(0), st.just(1), *[st.just(x) for x in (1.0, {}, {}, 0.1)]),
    st.builds(EvaluationDone, RANKS, *[st.just(x) for x in (0, 1, 1.0, {})]),
    st.builds(ModelSaved, RANKS, st.just("model")),
    st.builds(RankFinished, RANKS, *[st.just(x) for x in (1, 1, 1.0, {})]),
    st.builds(
        RankFailed,
        RANKS,
        st.sampled_from(FAILURE_REASONS),
        st.just("why"),
        st.none() | st.integers(0, 9),
    ),
    st.builds(RankExited, RANKS, st.sampled_from([0, 1, -9, -15, -44, -99]), st.booleans()),
)


class AnythingHappens(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.machine = Machine()
        self.now_s = 0.0
        self.launched, self.stopped, self.ended = set(), set(), set()
        self.states = {}

    def tell(self, stimulus):
        answer = self.machine.handle(stimulus, self.now_s)
        self.machine.validate()
        for instruction in answer:
            self.judge(instruction)

    def judge(self, instruction):
        gang = (instruction.job_id, instruction.attempt)
        job = self.machine.jobs[instruction.job_id]
        match instruction:
            case LaunchGang():
                assert gang not in self.launched
                assert {p.slot for p in instruction.placements} <= self.machine.slots
                assert len(instruction.placements) == job.num_ranks
                self.launched.add(gang)
            case StopGang():
                assert gang in self.launched - self.stopped - self.ended or job.is_finished
                assert instruction.placements == job.placements
                self.stopped.add(gang)
            case EndGang():
                assert gang in self.launched - self.ended
                assert job.state.is_final
                assert gang in self.stopped or job.state is JobState.SUCCEEDED
                self.ended.add(gang)

    @rule(job=JOBS, ranks=st.integers(1, 4), start_s=SECONDS, total_s=st.none() | SECONDS)
    def submit(self, job, ranks, start_s, total_s):
        self.tell(Submit(job, ranks, start_s, total_s))

    @rule(job=JOBS, ranks=st.integers(1, 2))
    def submit_without_haste(self, job, ranks):
        self.tell(Submit(job, ranks, 1e9))

    @rule(job=JOBS)
    def cancel(self, job):
        self.tell(Cancel(job))

    @rule(slots=st.frozensets(st.sampled_from(SLOTS)))
    def workers_change(self, slots):
        self.tell(WorkersChanged(slots))

    @rule()
    def all_workers_come(self):
        self.tell(WorkersChanged(frozenset(SLOTS)))

    @rule(job=JOBS, attempt=st.sampled_from([0, 1, 1, 1, 2]), event=EVENTS)
    def rank_reports(self, job, attempt, event):
        self.tell(Reported(job, attempt, event))

    @rule(job=JOBS, kind=st.sampled_from(["ready", "finished", "exited"]))
    def all_ranks_report(self, job, kind):
        for rank in range(self.machine.jobs[job].num_ranks if job in self.machine.jobs else 0):
            event = {
                "ready": TrainingStarted(rank, 1, 1, 1, 1),
                "finished": RankFinished(rank, 1, 1, 1.0, {}),
                "exited": RankExited(rank, 0, False),
            }[kind]
            self.tell(Reported(job, 1, event))

    @rule(job=JOBS, attempt=st.integers(0, 2))
    def launch_fails(self, job, attempt):
        self.tell(LaunchFailed(job, attempt, "no store"))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        self.now_s += seconds
        self.tell(Tick())

    @precondition(lambda self: any(j.failures for j in self.live()))
    @rule()
    def a_failed_gang_ends_in_bounded_time(self):
        doomed = [job for job in self.live() if job.failures]
        for seconds in (SETTLE_S, GIVE_UP_S):
            self.time_passes(seconds)
        for job in doomed:
            assert job.state in (JobState.FAILED, JobState.CANCELLED)
            assert (job.job_id, job.attempt) in self.ended

    @precondition(lambda self: any(j.is_finished and not j.failures for j in self.live()))
    @rule()
    def a_finished_gang_succeeds_in_bounded_time(self):
        done = [job for job in self.live() if job.is_finished and not job.failures]
        for seconds in (LINGER_S, GIVE_UP_S):
            self.time_passes(seconds)
        assert all(job.state is JobState.SUCCEEDED for job in done)

    def live(self):
        return [job for job in self.machine.jobs.values() if not job.state.is_final]

    @invariant()
    def jobs_move_along_the_table_and_final_states_stay(self):
        for job_id, job in self.machine.jobs.items():
            moves = [tuple(map(JobState, line.split(" -> "))) for line in job.history]
            assert all(new in TRANSITIONS[old] for old, new in moves)
            state, moves_before = self.states.get(job_id, (JobState.PENDING, 0))
            assert not (state.is_final and (job.state is not state or len(moves) > moves_before))
            self.states[job_id] = (job.state, len(moves))

    @invariant()
    def nobody_waits_without_a_reason(self):
        for job in self.live():
            assert bool(job.why_pending) == (job.state is JobState.PENDING)

    def teardown(self):
        """When everybody gives up, everything is let go of."""
        for job_id in list(self.machine.jobs):
            self.tell(Cancel(job_id))
        self.time_passes(GIVE_UP_S)
        assert not self.live()
        assert self.ended == self.launched


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(deadline=None, max_examples=120, stateful_step_count=40)
