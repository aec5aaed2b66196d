"""The job machine: (stimulus, now) -> instructions. No clock, no network, no threads.

Theory of operation. The shell (`plugin`) tells the machine what happened: somebody submitted or
cancelled, workers came or went, a rank reported, time passed. The machine changes its jobs and
answers with instructions: launch a gang, stop a gang, end a gang. Time is passed in.

A gang starts when every rank has a free worker, oldest job first. When the first rank fails, the
machine waits `SETTLE_S` for the others' accounts, since peers of a dead rank often tell of broken
connections before the dead rank's supervisor tells of its death; then it stops the gang. The job
ends when every rank's process has ended, or `GIVE_UP_S` after the stop. The culprit is the first
failure that is not about a lost peer; among non-finite losses, the one at the earliest step.
"""

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field

from distrain.coordinator.states import TRANSITIONS, InvalidTransition, JobState, Reason
from distrain.events import (
    Event,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    TrainingStarted,
)
from distrain.placement import Placement, Shortage, Slot, place_gang

SETTLE_S = 0.5
"""How long the accounts of a gang's other ranks are waited for after the first failure."""

STOP_GRACE_S = 3.0
"""How long a supervisor lets a stopped rank end by itself before it kills it."""

GIVE_UP_S = STOP_GRACE_S + 3.0
"""How long after a stop a rank that never reported its end is taken for gone."""


@dataclass(frozen=True)
class Submit:
    """Somebody asks for a job."""

    job_id: str
    num_ranks: int
    start_deadline_s: float
    total_deadline_s: float | None = None


@dataclass(frozen=True)
class Cancel:
    """Somebody wants a job to end."""

    job_id: str


@dataclass(frozen=True)
class WorkersChanged:
    """The cluster's workers, all of them, as they are now."""

    slots: frozenset[Slot]


@dataclass(frozen=True)
class Reported:
    """A rank, or its supervisor, told something."""

    job_id: str
    attempt: int
    event: Event


@dataclass(frozen=True)
class LaunchFailed:
    """The shell could not carry out a launch."""

    job_id: str
    attempt: int
    message: str


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Stimulus = Submit | Cancel | WorkersChanged | Reported | LaunchFailed | Tick


@dataclass(frozen=True)
class LaunchGang:
    """Start one process per placement."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class StopGang:
    """Ask every rank's supervisor to end its process, then kill it after a grace."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class EndGang:
    """The job is over: let go of tasks, store and whatever else the shell holds for it."""

    job_id: str
    attempt: int


Instruction = LaunchGang | StopGang | EndGang


@dataclass(frozen=True)
class Failure:
    """One account of what went wrong."""

    reason: str
    message: str
    rank: int | None = None
    step: int | None = None
    traceback: str | None = None
    log_tail: str = ""


@dataclass
class RankStatus:
    """What is known of one rank of the current attempt."""

    placement: Placement
    pid: int | None = None
    ready: bool = False
    finished: bool = False
    exited: bool = False


@dataclass
class Job:
    """One job and all that the machine knows of it."""

    job_id: str
    num_ranks: int
    submitted_s: float
    start_deadline_s: float
    total_deadline_s: float | None
    state: JobState = JobState.PENDING
    attempt: int = 0
    why_pending: str = ""
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    culprit: Failure | None = None
    settle_at_s: float | None = None
    give_up_at_s: float | None = None
    history: list[str] = field(default_factory=list)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the current attempt's ranks are."""
        return tuple(status.placement for status in self.ranks.values())


class Machine:
    """All jobs of one coordinator."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.slots: frozenset[Slot] = frozenset()

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Take in what happened and say what to do about it."""
        match stimulus:
            case Submit():
                self._submit(stimulus, now_s)
            case Cancel():
                self._cancel(stimulus.job_id, now_s)
            case WorkersChanged():
                self.slots = stimulus.slots
                self._lose_workers(now_s)
            case Reported():
                self._reported(stimulus, now_s)
            case LaunchFailed():
                self._launch_failed(stimulus, now_s)
            case Tick():
                pass
        return self._advance(now_s)

    def validate(self) -> None:
        """Check what must always hold; tests call this after every stimulus.

        Raises:
            AssertionError: An invariant is broken.
        """
        held = [p.slot for job in self._live() for p in job.placements]
        assert len(held) == len(set(held)), "two ranks hold one worker"
        for job in self.jobs.values():
            placed = job.state not in (JobState.PENDING,) and bool(job.ranks)
            assert not placed or len(job.ranks) == job.num_ranks, "a gang is not whole"
            assert job.state != JobState.FAILED or job.culprit, "a failure without a reason"
            assert job.state != JobState.STOPPING or job.culprit, "a stop without a reason"

    def _live(self) -> Iterable[Job]:
        return (job for job in self.jobs.values() if not job.state.is_final)

    def _submit(self, request: Submit, now_s: float) -> None:
        if request.job_id in self.jobs:  # submitting twice is submitting once
            return
        self.jobs[request.job_id] = Job(
            request.job_id,
            request.num_ranks,
            now_s,
            request.start_deadline_s,
            request.total_deadline_s,
        )

    def _cancel(self, job_id: str, now_s: float) -> None:
        job = self.jobs.get(job_id)
        if job and not job.state.is_final:
            self._fail(job, Failure(Reason.CANCELLED, "somebody cancelled the job"), now_s)
            if job.settle_at_s is not None:
                job.settle_at_s = now_s  # nobody else's account is needed

    def _lose_workers(self, now_s: float) -> None:
        for job in self._live():
            for rank, status in job.ranks.items():
                if status.placement.slot in self.slots or status.exited:
                    continue
                status.exited = True  # a rank dies with its worker (parent-death signal)
                if not status.finished:
                    worker = status.placement.slot.worker
                    message = f"rank {rank}: its Dask worker {worker} left the cluster"
                    self._fail(job, Failure(Reason.WORKER_LOST, message, rank), now_s)

    def _launch_failed(self, stimulus: LaunchFailed, now_s: float) -> None:
        job = self.jobs.get(stimulus.job_id)
        if job and job.attempt == stimulus.attempt and not job.state.is_final:
            self._fail(job, Failure("RankFailed", stimulus.message), now_s)

    def _reported(self, report: Reported, now_s: float) -> None:
        job = self.jobs.get(report.job_id)
        if job is None or job.attempt != report.attempt or job.state.is_final:
            return  # fenced: an older attempt changes nothing
        event = report.event
        status = job.ranks[event.rank]
        match event:
            case RankStarted():
                status.pid = event.pid
            case TrainingStarted():
                status.ready = True
            case RankFinished():
                status.finished = True
            case RankFailed():
                self._fail(job, _told_failure(event), now_s)
            case RankExited():
                status.exited = True
                told = any(failure.rank == event.rank for failure in job.failures)
                if not (status.finished or event.stopped or told):
                    self._fail(job, _silent_death(event, status), now_s)

    def _fail(self, job: Job, failure: Failure, now_s: float) -> None:
        job.failures.append(failure)
        if job.state is JobState.PENDING:
            job.culprit = failure
            self._end_badly(job)
        elif job.state in (JobState.STARTING, JobState.RUNNING) and job.settle_at_s is None:
            job.settle_at_s = now_s + SETTLE_S

    def _advance(self, now_s: float) -> list[Instruction]:
        """Move every job as far as it goes now."""
        instructions: list[Instruction] = []
        for job in list(self._live()):
            self._check_deadlines(job, now_s)
            if job.state is JobState.STARTING and all(s.ready for s in job.ranks.values()):
                self._move(job, JobState.RUNNING)
            if job.settle_at_s is not None and now_s >= job.settle_at_s:
                job.settle_at_s = None
                job.culprit = find_culprit(job.failures)
                job.give_up_at_s = now_s + GIVE_UP_S
                self._move(job, JobState.STOPPING)
                instructions.append(StopGang(job.job_id, job.attempt, job.placements))
            instructions += self._finish(job, now_s)
        return instructions + self._start_pending(now_s)

    def _check_deadlines(self, job: Job, now_s: float) -> None:
        if job.state.is_final or job.state is JobState.STOPPING or job.settle_at_s is not None:
            return
        waited_s = now_s - job.submitted_s
        if job.total_deadline_s is not None and waited_s > job.total_deadline_s:
            message = f"the job did not end within {job.total_deadline_s:g} s"
            self._fail(job, Failure(Reason.DEADLINE_EXCEEDED, message), now_s)
        elif job.state is not JobState.RUNNING and waited_s > job.start_deadline_s:
            missing = [str(rank) for rank, status in job.ranks.items() if not status.ready]
            why = job.why_pending or f"rank {', '.join(missing)} did not get ready"
            message = f"the job did not start within {job.start_deadline_s:g} s: {why}"
            self._fail(job, Failure(Reason.START_DEADLINE_EXCEEDED, message), now_s)

    def _finish(self, job: Job, now_s: float) -> list[Instruction]:
        statuses = job.ranks.values()
        if job.state in (JobState.STARTING, JobState.RUNNING) and job.settle_at_s is None:
            if statuses and all(s.finished and s.exited for s in statuses):
                self._move(job, JobState.SUCCEEDED)
                return [EndGang(job.job_id, job.attempt)]
        elif job.state is JobState.STOPPING:
            gave_up = job.give_up_at_s is not None and now_s >= job.give_up_at_s
            if gave_up or all(status.exited for status in statuses):
                self._end_badly(job)
                return [EndGang(job.job_id, job.attempt)]
        return []

    def _start_pending(self, now_s: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for job in [j for j in self._live() if j.state is JobState.PENDING]:
            busy = [p.slot for other in self._live() for p in other.placements]
            placed = place_gang(job.num_ranks, self.slots, busy)
            if isinstance(placed, Shortage):
                job.why_pending = placed.reason
                break  # first come, first served: a small job does not overtake a large one
            job.attempt += 1
            job.why_pending = ""
            job.ranks = {p.world.rank: RankStatus(p) for p in placed}
            self._move(job, JobState.STARTING)
            instructions.append(LaunchGang(job.job_id, job.attempt, placed))
        return instructions

    def _end_badly(self, job: Job) -> None:
        cancelled = job.culprit is not None and job.culprit.reason == Reason.CANCELLED
        self._move(job, JobState.CANCELLED if cancelled else JobState.FAILED)

    def _move(self, job: Job, state: JobState) -> None:
        if state not in TRANSITIONS[job.state]:
            raise InvalidTransition(job.job_id, job.state, state, job.history)
        job.history.append(f"{job.state} -> {state}")
        job.state = state


def find_culprit(failures: list[Failure]) -> Failure:
    """The failure that brought the others about (see the module's theory of operation).

    >>> lost = Failure("PeerLost", "connection reset", rank=0)
    >>> dead = Failure("RankDied", "killed by SIGKILL", rank=1)
    >>> find_culprit([lost, dead]).rank
    1
    """

    def order(numbered: tuple[int, Failure]) -> tuple[bool, bool, int, int]:
        arrival, failure = numbered
        cancelled = failure.reason == Reason.CANCELLED
        step = failure.step if failure.reason == "NonFiniteLoss" else None
        return (not cancelled, failure.reason == "PeerLost", step if step else 0, arrival)

    return min(enumerate(failures), key=order)[1]


def _told_failure(event: RankFailed) -> Failure:
    return Failure(event.reason, event.message, event.rank, event.step, event.traceback)


def _silent_death(event: RankExited, status: RankStatus) -> Failure:
    place = f"pid {status.pid} on {status.placement.slot.worker}"
    if event.exit_code < 0:
        name = signal.Signals(-event.exit_code).name
        message = f"rank {event.rank} ({place}) was killed by {name}"
        if name == "SIGKILL":
            message += "; somebody's `kill -9`, or the kernel was out of memory (see dmesg)"
    else:
        message = f"rank {event.rank} ({place}) ended with exit code {event.exit_code}, unannounced"
    return Failure(Reason.RANK_DIED, message, event.rank, log_tail=event.log_tail)
