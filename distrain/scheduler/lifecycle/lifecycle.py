"""The state machine of jobs: (stimulus, now) -> instructions. No clock, no network, no threads.

The coordinator (`scheduler.plugin`) calls `handle` with a stimulus: a job was submitted or
cancelled, workers came or went, a rank reported an event, or time passed. The lifecycle changes its
jobs and returns instructions: launch a gang (the ranks of one attempt), have the gang save a
checkpoint, stop it, release it, or note that a job's state has changed. `queue` decides which jobs
start on which workers, and which jobs they preempt. `failed_attempt` decides which rank caused an
early end, and whether the job restarts.

A gang starts when every rank has a free worker. When the first rank fails, the lifecycle waits
`SETTLE_S` for reports of the other ranks, since peers of a dead rank often report broken
connections before the dead rank's supervisor reports its death. Then the gang is killed. A gang
that is stopped for any other reason (a user cancelled the job, a worker has to leave, a job of
higher priority needs the workers, more workers came) gets a grace period to save a checkpoint.

An attempt ends when all its processes have ended, or `GIVE_UP_S` after the grace period. Then the
job restarts within its budgets, or it ends with a reason. While the job waits for its next attempt,
its workers stay reserved. A worker whose rank never reported its end is not used again until the
rank reports it, or the worker leaves.

If no rank of a running gang has made progress for the job's `progress_s`, every supervisor reports
what its rank does. Then the attempt fails, and the failure names the culprit (`watchdog`).

A job has succeeded when every rank reported that it finished and every process has ended, with any
exit code. Processes that linger are stopped after `LINGER_S`, and the job still succeeds.
"""

from collections.abc import Iterable
from dataclasses import replace

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import (
    CheckpointSaved,
    EvaluationDone,
    Heartbeat,
    RankExited,
    RankFailed,
    RankFinished,
    RankStarted,
    StacksTaken,
    StepsDone,
    StopNoticed,
    TrainingStarted,
)
from distrain.jobs.job_view import Restart
from distrain.jobs.reasons import Reason
from distrain.jobs.states import TRANSITIONS, InvalidTransition, JobState
from distrain.scheduler.lifecycle import queue
from distrain.scheduler.lifecycle.failed_attempt import (
    NOT_OF_THE_HOST,
    death_without_report,
    find_culprit,
    judge,
    name_ranks_without_report,
    reported_failure,
)
from distrain.scheduler.lifecycle.job import AttemptFailure, Job, RankStatus, slot_key
from distrain.scheduler.lifecycle.messages import (
    Cancel,
    ChangePriority,
    CheckpointGang,
    EndGang,
    Instruction,
    LaunchFailed,
    LaunchGang,
    Move,
    Reported,
    Stimulus,
    StopGang,
    Submit,
    TakeStacks,
    Tick,
    WorkerLeaving,
    WorkersChanged,
)
from distrain.scheduler.lifecycle.queue import HostFailures
from distrain.scheduler.lifecycle.watchdog import apply_heartbeat, missed_deadline, watch

SETTLE_S = 0.5  # how long to wait for reports of a gang's other ranks after the first failure
CANCEL_GRACE_S = 3.0  # the default grace period for cancelled jobs and after missed deadlines
GIVE_UP_S = 3.0  # how long after the grace period a rank without a report of its end counts as gone
LINGER_S = 30.0  # how long processes may take to exit after all ranks have finished


_CANCELLED = "a user cancelled the job"

_PROGRESS = (Heartbeat, StepsDone, EvaluationDone)
"""Events that ranks send frequently. They only update jobs; the next tick gives instructions."""


class Lifecycle:
    """The state machine of a scheduler's jobs: `handle` gets a stimulus, returns instructions."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.slots: frozenset[Slot] = frozenset()  # the workers that may have ranks
        self.others = ""  # why other workers may not; as in `WorkersChanged`
        self.leaving: set[str] = set()  # addresses of workers that were asked to leave
        # workers whose rank never reported its end: the job, attempt and rank
        self._unheard: dict[Slot, tuple[str, int, int]] = {}
        self.host_failures = HostFailures()
        self._submitted = 0
        self._out: list[Instruction] = []

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Process a stimulus; return the instructions to carry out, in order.

        Reports that ranks send often (`_PROGRESS`) give none: their instructions follow at the next
        tick.
        `now_s` may be on any clock, but must not decrease from one call to the next.
        """
        match stimulus:  # the frequent kind first: each `case` costs time
            case Reported():
                self._reported(stimulus, now_s)
                if isinstance(stimulus.event, _PROGRESS):
                    return []
            case Submit():
                self._submit(stimulus, now_s)
            case Cancel():
                self._cancel(stimulus, now_s)
            case ChangePriority():
                self._change_priority(stimulus)
            case WorkersChanged():
                self.others = stimulus.others
                self._workers_changed(stimulus.slots, now_s)
            case WorkerLeaving():
                self._worker_leaves(stimulus, now_s)
            case LaunchFailed():
                self._launch_failed(stimulus, now_s)
            case Tick():
                pass
        for job in list(self._live()):
            self._advance(job, now_s)
        self._schedule(now_s)
        out, self._out = self._out, []
        return out

    @property
    def usable_slots(self) -> frozenset[Slot]:
        """The workers, busy or free, on which ranks may be placed."""
        return frozenset(
            slot
            for slot in self.slots
            if slot.worker not in self.leaving and slot not in self._unheard
        )

    def _live(self) -> Iterable[Job]:
        return (job for job in self.jobs.values() if not job.state.is_final)

    # --- what happened

    def _submit(self, request: Submit, now_s: float) -> None:
        if request.job_id in self.jobs:  # a repeated submission has no effect
            return
        job = Job(request, now_s, self._submitted, attempt=request.first_attempt - 1)
        job.fewer_from_s = now_s + queue.FEWER_AFTER_S
        self._submitted += 1
        self.jobs[request.job_id] = job

    def _cancel(self, request: Cancel, now_s: float) -> None:
        job = self.jobs.get(request.job_id)
        if job is None or job.state.is_final:
            return
        message = f"the job was cancelled: {request.why}" if request.why else _CANCELLED
        cause = AttemptFailure(Reason.CANCELLED, message)
        if job.state.waits:
            self._end(job, cause, JobState.CANCELLED, now_s)
            return
        grace_s = request.grace_s
        if grace_s is None:
            grace_s = min(CANCEL_GRACE_S, job.spec.deadlines.stop_grace_s)
        if not self._ends_anyway(job, now_s):
            self._stop(job, cause, now_s, grace_s)
        elif request.grace_s is not None and now_s + grace_s + GIVE_UP_S < (job.give_up_at_s or 0):
            assert job.culprit is not None
            self._stop(job, job.culprit, now_s, grace_s)

    def _change_priority(self, wanted: ChangePriority) -> None:
        job = self.jobs.get(wanted.job_id)
        if job is not None and job.state.waits:
            job.request = replace(job.request, priority=wanted.priority)

    def _ends_anyway(self, job: Job, now_s: float) -> bool:
        cause = job.culprit
        return cause is not None and judge(job, cause, now_s, queue_again=False).state.is_final

    def _workers_changed(self, slots: frozenset[Slot], now_s: float) -> None:
        self.slots = slots
        self.leaving &= {slot.worker for slot in slots}
        self._unheard = {slot: who for slot, who in self._unheard.items() if slot in slots}
        for job in self._live():
            for rank, status in job.ranks.items():
                slot = status.placement.slot
                if slot in slots or status.exited:
                    continue
                status.exited = True  # a rank dies with its worker (parent-death signal)
                if not status.finished:
                    message = f"rank {rank}: its Dask worker {slot.worker} left the cluster"
                    self._fail(job, AttemptFailure(Reason.WORKER_LOST, message, rank), now_s)

    def _worker_leaves(self, notice: WorkerLeaving, now_s: float) -> None:
        self.leaving.add(notice.worker)
        for job in self._live():
            ranks = [r for r, s in job.ranks.items() if s.placement.slot.worker == notice.worker]
            if ranks and job.state in (JobState.STARTING, JobState.RUNNING):
                who = ", ".join(map(str, ranks))
                message = f"rank {who}: its Dask worker {notice.worker} shuts down: {notice.why}"
                cause = AttemptFailure(Reason.PREEMPTED, message, ranks[0])
                self._stop(job, cause, now_s, job.spec.deadlines.stop_grace_s)

    def _launch_failed(self, stimulus: LaunchFailed, now_s: float) -> None:
        failed = stimulus.job_id, stimulus.attempt
        self._unheard = {slot: who for slot, who in self._unheard.items() if who[:2] != failed}
        job = self.jobs.get(stimulus.job_id)
        if job and job.attempt == stimulus.attempt and job.state.holds_workers:
            for status in job.ranks.values():
                status.exited = True  # none has started
            self._fail(job, AttemptFailure(Reason.RANK_FAILED, stimulus.message), now_s)

    def _reported(self, report: Reported, now_s: float) -> None:
        event = report.event
        if isinstance(event, RankExited):
            who = (report.job_id, report.attempt, event.rank)
            self._unheard = {slot: w for slot, w in self._unheard.items() if w != who}
        job = self.jobs.get(report.job_id)
        if job is None or job.attempt != report.attempt or not job.state.holds_workers:
            return  # fenced: events of an older attempt change nothing
        status = job.ranks.get(event.rank)
        if status is None:  # the job has no such rank
            return
        match event:
            case Heartbeat():
                apply_heartbeat(status, event, now_s)
                job.step = max(job.step, event.step)
            case StepsDone():
                job.step = max(job.step, event.step)
            case RankStarted():
                status.pid = event.pid
            case TrainingStarted():
                status.ready = True
                job.step = max(job.step, event.first_step)
            case StacksTaken():
                job.stacks[event.rank] = event
            case CheckpointSaved():
                self._checkpoint_saved(job, now_s)
            case StopNoticed():
                message = f"rank {event.rank} received {event.signal}"
                cause = AttemptFailure(Reason.PREEMPTED, message, event.rank)
                if job.state is not JobState.STOPPING and not status.finished:
                    self._stop(job, cause, now_s, job.spec.deadlines.stop_grace_s)
            case RankFinished():
                status.ready = status.finished = True
            case RankFailed() if not status.finished:
                self._fail(job, reported_failure(event), now_s)
            case RankExited():
                self._exited(job, event, status, now_s)

    def _exited(self, job: Job, event: RankExited, status: RankStatus, now_s: float) -> None:
        status.exited = True
        reported = any(failure.rank == event.rank for failure in job.failures)
        if not (status.finished or reported or job.state is JobState.STOPPING):
            self._fail(job, death_without_report(event, status), now_s)

    def _checkpoint_saved(self, job: Job, now_s: float) -> None:
        job.expect_checkpoint(now_s)
        if job.state is not JobState.RUNNING or job.settle_at_s is not None or job.is_finished:
            return
        if num_ranks := queue.could_grow(self._cluster(now_s), job):
            message = f"continues with {num_ranks} ranks instead of {len(job.ranks)}"
            self._stop(
                job, AttemptFailure(Reason.RESIZED, message), now_s, job.spec.deadlines.stop_grace_s
            )

    # --- how an attempt ends

    def _fail(self, job: Job, failure: AttemptFailure, now_s: float) -> None:
        job.failures.append(failure)
        if job.state in (JobState.STARTING, JobState.RUNNING) and job.settle_at_s is None:
            job.settle_at_s = now_s + SETTLE_S

    def _stop(self, job: Job, cause: AttemptFailure, now_s: float, grace_s: float) -> None:
        job.culprit = cause
        job.settle_at_s = job.stacks_due_s = None
        job.give_up_at_s = now_s + grace_s + GIVE_UP_S
        if job.state is not JobState.STOPPING:
            self._move(job, JobState.STOPPING, now_s)
        self._out.append(StopGang(job.job_id, job.attempt, job.placements, grace_s))

    def _advance(self, job: Job, now_s: float) -> None:
        self._check_deadlines(job, now_s)
        if job.state is JobState.STARTING and all(s.ready for s in job.ranks.values()):
            self._begin_to_run(job, now_s)
        if job.state is JobState.RUNNING and job.settle_at_s is None and not job.is_finished:
            self._watch(job, now_s)
            self._checkpoint_in_time(job, now_s)
        if job.settle_at_s is not None and now_s >= job.settle_at_s:
            cause = name_ranks_without_report(find_culprit(job.failures), job)
            if cause.rank in job.ranks and cause.reason not in NOT_OF_THE_HOST:
                self.host_failures.blame(job.ranks[cause.rank].placement.slot.host, now_s)
            self._stop(job, cause, now_s, 0.0)
        self._finish(job, now_s)

    def _begin_to_run(self, job: Job, now_s: float) -> None:
        self._move(job, JobState.RUNNING, now_s)
        job.starting_since_s = None
        job.expect_checkpoint(now_s)
        for status in job.ranks.values():
            status.progressed_s = now_s

    def _watch(self, job: Job, now_s: float) -> None:
        match watch(job, now_s):
            case AttemptFailure() as hang:
                self._fail(job, hang, now_s)
                job.settle_at_s = now_s  # hanging ranks report nothing that could be waited for
            case TakeStacks() as instruction:
                self._out.append(instruction)

    def _checkpoint_in_time(self, job: Job, now_s: float) -> None:
        due_s = job.next_checkpoint_s
        if due_s is not None and now_s >= due_s and job.settle_at_s is None:
            job.expect_checkpoint(now_s)
            self._out.append(CheckpointGang(job.job_id, job.attempt, job.placements))

    def _check_deadlines(self, job: Job, now_s: float) -> None:
        if job.settle_at_s is not None or job.state is JobState.STOPPING or job.is_finished:
            return
        cause = missed_deadline(job, now_s)
        if cause is None:
            return
        if job.state.holds_workers:
            job.failures.append(cause)
            self._stop(job, cause, now_s, min(CANCEL_GRACE_S, job.spec.deadlines.stop_grace_s))
        else:
            self._end(job, cause, JobState.FAILED, now_s)

    def _finish(self, job: Job, now_s: float) -> None:
        gave_up = job.give_up_at_s is not None and now_s >= job.give_up_at_s
        if not (job.state.holds_workers and job.settle_at_s is None):
            return
        if job.is_gone or gave_up:
            if job.is_finished:
                self._let_go(job)
                job.culprit = None
                if job.state is JobState.STARTING:
                    self._move(job, JobState.RUNNING, now_s)
                self._move(job, JobState.SUCCEEDED, now_s)
            elif job.state is JobState.STOPPING:
                self._after_early_end(job, now_s)
        elif job.is_finished and job.state is not JobState.STOPPING:
            self._hurry(job, now_s)

    def _hurry(self, job: Job, now_s: float) -> None:
        if job.linger_until_s is None:
            job.linger_until_s = now_s + LINGER_S
        if now_s >= job.linger_until_s and job.give_up_at_s is None:
            job.give_up_at_s = now_s + GIVE_UP_S
            self._out.append(StopGang(job.job_id, job.attempt, job.placements))

    def _let_go(self, job: Job) -> None:
        for rank, status in job.ranks.items():
            if not status.exited:
                self._unheard[status.placement.slot] = (job.job_id, job.attempt, rank)
        self._out.append(EndGang(job.job_id, job.attempt))

    def _after_early_end(self, job: Job, now_s: float) -> None:
        cause = job.culprit
        assert cause is not None
        self._let_go(job)
        verdict = judge(job, cause, now_s, queue_again=job.queue_again)
        if verdict.state.is_final:
            self._end(job, replace(cause, message=verdict.message), verdict.state, now_s)
            return
        after_s = now_s - job.submitted_s
        restart = Restart(job.attempt, cause.reason, cause.message, job.step, after_s)
        job.restarts.append(restart)
        if verdict.budget:
            job.spent[verdict.budget] += 1
        if verdict.budget in ("rank_failures", "worker_losses"):
            further = job.step > job.furthest_failed_step
            job.failures_in_a_row = 1 if further else job.failures_in_a_row + 1
            job.furthest_failed_step = max(job.step, job.furthest_failed_step)
        keys = frozenset(slot_key(p.slot) for p in job.placements)
        self._rest(job)
        job.not_before_s = now_s + verdict.backoff_s
        job.why_so_long = verdict.why_so_long
        job.fewer_from_s = now_s + queue.FEWER_AFTER_S
        if verdict.state is JobState.RESTARTING:
            job.reserved = keys - {key for other in self._live() for key in other.reserved}
            job.starting_since_s = now_s
        self._move(job, verdict.state, now_s, cause)

    def _rest(self, job: Job) -> None:
        job.ranks, job.failures, job.culprit, job.stacks = {}, [], None, {}
        job.settle_at_s = job.linger_until_s = job.give_up_at_s = job.stacks_due_s = None
        job.next_checkpoint_s = None
        job.queue_again = False
        job.starting_since_s = None

    def _end(self, job: Job, cause: AttemptFailure, state: JobState, now_s: float) -> None:
        job.culprit = cause
        job.reserved = frozenset()
        job.why_pending = ""
        self._move(job, state, now_s)

    # --- how an attempt begins

    def _cluster(self, now_s: float) -> queue.QueueView:
        avoided = self.host_failures.avoided(now_s)
        return queue.QueueView(self.usable_slots, list(self._live()), avoided, now_s, self.others)

    def _schedule(self, now_s: float) -> None:
        while any(job.state.waits for job in self._live()):
            answers = queue.decide(self._cluster(now_s))
            for answer in answers:
                if isinstance(answer, queue.Wait):
                    answer.job.why_pending = answer.why
            last = next((a for a in answers if not isinstance(a, queue.Wait)), None)
            if isinstance(last, queue.Start):
                self._launch(last.job, last.placements, now_s)
            elif isinstance(last, queue.Preempt):
                self._make_room(last, now_s)
            else:
                return

    def _launch(self, job: Job, placements: tuple[RankPlacement, ...], now_s: float) -> None:
        job.attempt += 1
        job.starting_since_s = now_s
        job.why_pending = ""
        job.reserved = frozenset()
        job.ranks = {p.world.rank: RankStatus(p) for p in placements}
        self._move(job, JobState.STARTING, now_s)
        self._out.append(LaunchGang(job.job_id, job.attempt, placements))

    def _make_room(self, wanted: queue.Preempt, now_s: float) -> None:
        for victim in wanted.victims:
            message = f"made room for {wanted.job.job_id}, whose priority is higher"
            cause = AttemptFailure(Reason.PREEMPTED, message)
            if victim.state is JobState.RESTARTING:
                victim.reserved = frozenset()
                victim.starting_since_s = None
                self._move(victim, JobState.PENDING, now_s, cause)
            else:
                self._stop(victim, cause, now_s, victim.spec.deadlines.stop_grace_s)
                victim.queue_again = True
        names = ", ".join(victim.job_id for victim in wanted.victims)
        wanted.job.why_pending = f"waits for {names} to stop"

    def _move(
        self, job: Job, state: JobState, now_s: float, cause: AttemptFailure | None = None
    ) -> None:
        if state not in TRANSITIONS[job.state]:
            raise InvalidTransition(job.job_id, job.state, state)
        cause = cause or job.culprit
        why = (cause.reason, cause.message.splitlines()[0]) if cause else ()
        move = Move(job.job_id, now_s, job.state, state, job.attempt, *why)
        job.state, job.moves = state, job.moves + 1
        self._out.append(move)
