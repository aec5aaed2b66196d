"""The job machine: (stimulus, now) -> instructions. No clock, no network, no threads.

Theory of operation. The shell (`plugin`) tells the machine what happened: somebody submitted or
cancelled, workers came or went, a rank reported, time passed. The machine changes its jobs and
answers with instructions: launch a gang, stop a gang, end a gang. Time is passed in.

A gang starts when every rank has a free worker, oldest job first. When the first rank fails, the
machine waits `SETTLE_S` for the others' accounts, since peers of a dead rank often tell of broken
connections before the dead rank's supervisor tells of its death; then it stops the gang. The job
ends when every rank's process has ended, or `GIVE_UP_S` after the stop. The culprit is the first
failure that is not about a lost peer; among non-finite losses, the one at the earliest step.

A job has succeeded when every rank told that it finished and its process has ended, with whatever
exit code. Processes that linger are stopped after `LINGER_S`; that costs the job nothing.
"""

from collections.abc import Iterable

from distrain.coordinator.job import (
    Failure,
    Job,
    RankStatus,
    find_culprit,
    point_at_silent_ranks,
    silent_death,
    told_failure,
)
from distrain.coordinator.messages import (
    Cancel,
    EndGang,
    Instruction,
    LaunchFailed,
    LaunchGang,
    Reported,
    Stimulus,
    StopGang,
    Submit,
    Tick,
    WorkersChanged,
)
from distrain.coordinator.states import TRANSITIONS, InvalidTransition, JobState, Reason
from distrain.events import RankExited, RankFailed, RankFinished, RankStarted, TrainingStarted
from distrain.placement import Shortage, Slot, place_gang

__all__ = [
    "Cancel",
    "EndGang",
    "Failure",
    "Instruction",
    "Job",
    "LaunchFailed",
    "LaunchGang",
    "Machine",
    "RankStatus",
    "Reported",
    "Stimulus",
    "StopGang",
    "Submit",
    "Tick",
    "WorkersChanged",
    "find_culprit",
]

SETTLE_S = 0.5
"""How long the accounts of a gang's other ranks are waited for after the first failure."""

STOP_GRACE_S = 3.0
"""How long a supervisor lets a stopped rank end by itself before it kills it."""

GIVE_UP_S = STOP_GRACE_S + 3.0
"""How long after a stop a rank that never reported its end is taken for gone."""

LINGER_S = 30.0
"""How long the processes of a gang that finished may take to end by themselves."""


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
            assert list(job.ranks) in ([], list(range(job.num_ranks))), "a gang is not whole"
            active = job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
            assert job.ranks or not active, "an active job without ranks"
            assert not (job.ranks and job.state is JobState.PENDING), "a pending job holds workers"
            succeeded = job.state is JobState.SUCCEEDED
            assert job.is_finished or not succeeded, "a success without all ranks' work"
            bad = job.state in (JobState.STOPPING, JobState.FAILED, JobState.CANCELLED)
            assert bad == (job.culprit is not None), "a bad end and its reason come together"

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
        status = job.ranks.get(event.rank)
        if status is None:  # it has no such rank
            return
        match event:
            case RankStarted():
                status.pid = event.pid
            case TrainingStarted():
                status.ready = True
            case RankFinished():
                status.ready = status.finished = True
            case RankFailed() if not status.finished:
                self._fail(job, told_failure(event), now_s)
            case RankExited():
                status.exited = True
                told = any(failure.rank == event.rank for failure in job.failures)
                if not (status.finished or told or job.state is JobState.STOPPING):
                    self._fail(job, silent_death(event, status), now_s)

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
                job.culprit = point_at_silent_ranks(find_culprit(job.failures), job)
                job.give_up_at_s = now_s + GIVE_UP_S
                self._move(job, JobState.STOPPING)
                instructions.append(StopGang(job.job_id, job.attempt, job.placements))
            instructions += self._finish(job, now_s)
        return instructions + self._start_pending(now_s)

    def _check_deadlines(self, job: Job, now_s: float) -> None:
        ending = job.settle_at_s is not None or job.state is JobState.STOPPING
        if ending or job.state.is_final or job.is_finished:
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
        gave_up = job.give_up_at_s is not None and now_s >= job.give_up_at_s
        gone = gave_up or all(status.exited for status in job.ranks.values())
        if job.state is JobState.STOPPING and gone:
            self._end_badly(job)
            return [EndGang(job.job_id, job.attempt)]
        if job.state in (JobState.STARTING, JobState.RUNNING) and job.settle_at_s is None:
            if job.is_finished and gone:
                self._move(job, JobState.SUCCEEDED)
                return [EndGang(job.job_id, job.attempt)]
            if job.is_finished:
                return self._hurry(job, now_s)
        return []

    def _hurry(self, job: Job, now_s: float) -> list[Instruction]:
        """End the processes of a gang that finished but lingers."""
        if job.linger_until_s is None:
            job.linger_until_s = now_s + LINGER_S
        if now_s < job.linger_until_s or job.give_up_at_s is not None:
            return []
        job.give_up_at_s = now_s + GIVE_UP_S
        return [StopGang(job.job_id, job.attempt, job.placements)]

    def _start_pending(self, now_s: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        pending = [job for job in self._live() if job.state is JobState.PENDING]
        for place, job in enumerate(pending):
            busy = [p.slot for other in self._live() for p in other.placements]
            placed = place_gang(job.num_ranks, self.slots, busy)
            if isinstance(placed, Shortage):
                job.why_pending = placed.reason
                for later in pending[place + 1 :]:
                    later.why_pending = f"waits behind {job.job_id}, which {placed.reason}"
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
