"""The coordinator: a Dask scheduler plugin that carries out the decisions of `Lifecycle`."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from traceback import format_exc, walk_tb
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from distributed import Scheduler, SchedulerPlugin
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from distrain.errors import DistrainError
from distrain.jobs.events import RankExited, RankFailed, from_json
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.runs.records.collector import Collector
from distrain.scheduler.gangs import Gangs
from distrain.scheduler.history.job_history import JobHistory
from distrain.scheduler.job_list import (
    Tombstones,
    last_view,
    other_builds,
    show,
    slot_of,
    tombstone_of,
)
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.lifecycle.messages import (
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
from distrain.scheduler.recording import Recordings
from distrain.version import build
from distrain.workers.supervisor import (
    BUILD_OP,
    EVENT_OP,
    LEAVING_OP,
    RECORDED_OP,
    SupervisorPlugin,
    rank_of_key,
)
from distrain.workers.worker_shutdown import NannyLeavePlugin

PLUGIN_NAME = "distrain-coordinator"
TICK_MS = 100
KEPT_JOBS = 500
"""Ended jobs that stay visible; those that ended first are forgotten first.

As many further jobs are kept while their summaries are not written.

A service must ask for changes before as many further jobs have ended.
"""
ENDED_ENTRIES = 128  # entries of progress kept of ended jobs, once another job is submitted

log = logging.getLogger("distrain.coordinator")

_P = ParamSpec("_P")
_R = TypeVar("_R")


class CoordinatorPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Places the ranks of jobs on workers, merges their metrics, and stops them together."""

    name = PLUGIN_NAME
    idempotent = True  # a second client must not replace a coordinator that runs jobs
    _started = False

    async def start(self, scheduler: Scheduler) -> None:
        if self._started:
            return  # Dask calls `start` again for plugins that a preload module has started
        self.gangs = Gangs(scheduler, PLUGIN_NAME)  # first: it may refuse its settings
        self._started = True
        self.scheduler = scheduler
        self.epoch = uuid4().hex
        self.builds: dict[str, str] = {}
        self.lifecycle = Lifecycle()
        self.tombstones = Tombstones()
        self.collectors: dict[str, Collector] = {}
        self.histories: dict[str, JobHistory] = {}
        self.recordings = Recordings(self.gangs.send)
        self._tasks: set[asyncio.Task[None]] = set()
        self._known_bugs: set[tuple[tuple[str, int], ...]] = set()  # places whose bug was logged
        scheduler.stream_handlers[EVENT_OP] = self.rank_reported
        scheduler.stream_handlers[LEAVING_OP] = self.worker_leaves
        scheduler.stream_handlers[BUILD_OP] = self.worker_runs
        scheduler.stream_handlers[RECORDED_OP] = self.recorded
        self.add_api(scheduler)
        # Dask adds a plugin only after `start`. A second client that comes before that would start
        # another coordinator, which would get the calls but no workers.
        scheduler.add_plugin(self, name=PLUGIN_NAME)
        await scheduler.register_worker_plugin(
            None, dumps(SupervisorPlugin()), SupervisorPlugin.name, idempotent=True
        )
        with suppress(OSError, TimeoutError):  # a nanny does not answer; later ones get the plugin
            await scheduler.register_nanny_plugin(
                None, dumps(NannyLeavePlugin()), NannyLeavePlugin.name, idempotent=True
            )
        self._ticker = PeriodicCallback(lambda: self.handle_stimulus(Tick()), TICK_MS)
        self._ticker.start()
        self._workers_changed()

    def add_api(self, scheduler: Scheduler) -> None:
        """Hook for subclasses, which add the handlers that clients call; does nothing here.

        `start` calls it before another client can find the coordinator.
        """

    async def close(self) -> None:
        self._ticker.stop()
        await self.gangs.close()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._workers_changed()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        self.gangs.forget_worker(worker)
        self.builds.pop(worker, None)
        self._workers_changed(without=worker)

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: Iterable[Any]) -> list[Any]:
        """Return the workers without ranks, which Dask may retire when the cluster shrinks."""
        jobs = self.lifecycle.jobs.values()
        held = {p.slot.worker for job in jobs if not job.state.is_final for p in job.placements}
        return [worker for worker in workers if worker.address not in held]

    def transition(self, key: Any, start: str, finish: str, *_: object, **details: Any) -> None:
        """Handle a Dask task's change of state, to detect that a rank's supervisor has failed.

        Then it reports the failure and end of the rank to the lifecycle, since no other process
        does.
        """
        whose = rank_of_key(key) if finish == "erred" else None
        if whose is None:
            return
        job_id, attempt, rank = whose
        message = f"rank {rank}: its supervisor failed: {details.get('exception_text', '?')}"
        traceback = details.get("traceback_text") or None
        failure = RankFailed(rank, Reason.RANK_FAILED, message, traceback=traceback)
        self.handle_stimulus(Reported(job_id, attempt, failure))
        self.handle_stimulus(Reported(job_id, attempt, RankExited(rank, 1, stopped=False)))

    def queue(
        self,
        job_id: str,
        spec: JobSpec,
        run_dir: str,
        first_attempt: int = 1,
        priority: int | None = None,
        *,
        age_s: float = 0.0,
        has_run: bool = False,
    ) -> bool:
        """Queue a new job, or a later submission of an ended one; return True.

        Returns False, and changes nothing, if the job has not ended, or if it already had the
        attempt `first_attempt`. `priority` replaces the spec's, unless it is `None`. `age_s` and
        `has_run` are as in `Submit`.
        """
        job, ended = self.lifecycle.jobs.get(job_id), self.tombstones.get(job_id)
        if job is not None and not (job.state.is_final and first_attempt > job.attempt):
            return False
        if ended is not None and first_attempt <= ended.attempt:
            return False
        if job_id in self.lifecycle.jobs:
            self._forget(job_id)
        self.tombstones.pop(job_id, None)
        self._forget_old_jobs()
        self.follow(job_id, first_attempt)
        priority = spec.queue.priority if priority is None else priority
        self.handle_stimulus(Submit(job_id, spec, run_dir, priority, first_attempt, age_s, has_run))
        return True

    def follow(self, job_id: str, first_attempt: int = 1) -> None:
        """Create the collector and the history of a new submission, for its progress."""
        self.collectors[job_id] = Collector()
        self.histories[job_id] = history = JobHistory(time.time())
        history.move(first_attempt - 1, JobState.PENDING, history.submitted_s)

    def view(self, job_id: str, since: int = 0) -> dict[str, Any] | None:
        """Return the `JobView` of a job as JSON values, with its progress from entry `since` on.

        A job that was removed has no progress. `None` if the job is unknown.
        """
        if job_id in self.lifecycle.jobs:
            return self.show(job_id, since).to_json()
        ended = self.tombstones.get(job_id)
        return last_view(ended).to_json() if ended else None

    def show(self, job_id: str, since: int | None = None) -> JobView:
        """Return the view of a job with its progress from entry `since` on.

        If `since` is `None`, the view has no progress. Raises `KeyError` for an unknown job.
        """
        outcome = self.recordings.outcome(job_id)
        return show(self.lifecycle.jobs[job_id], self.collectors[job_id], outcome, since)

    def worker_leaves(self, worker: str, why: str, **_: object) -> None:
        """Handle a worker's message that it will leave the cluster; `why` says who stops it."""
        self.handle_stimulus(WorkerLeaving(worker, why))

    def worker_runs(self, worker: str, build: str, **_: object) -> None:
        """Handle a worker's message about its build of distrain.

        Only workers with the scheduler's build get ranks.
        """
        if worker in self.scheduler.workers:
            self.builds[worker] = build
            self._workers_changed()

    def recorded(self, job_id: str, attempt: int | None, error: str, **_: object) -> None:
        """Handle a worker's answer to a request to write files of a run; see `Recordings.heard`."""
        self.recordings.heard(job_id, attempt, error)

    def rank_reported(self, job_id: str, attempt: int, event: dict[str, Any], **_: object) -> None:
        """Handle a worker's message with an event of a rank or its supervisor, as JSON values.

        An event that cannot be read counts as a failure of the rank.
        """
        # An exception from here would close the connection to the worker.
        try:
            parsed = from_json(event)
            job = self.lifecycle.jobs.get(job_id)
            if job is not None and job.attempt == attempt:  # older attempts change nothing
                self.collectors[job_id].add(parsed)
                entries = self.collectors[job_id].entries
                self.recordings.add(job_id, parsed, entries, lambda: self.show(job_id))
        except Exception as error:
            rank = int(event.get("rank", 0))
            message = f"rank {rank}: the scheduler cannot read its report: {error!r}"
            hint = "Run the same version of distrain on scheduler and workers."
            traceback = None if isinstance(error, ValueError) else format_exc()
            parsed = RankFailed(
                rank, Reason.RANK_FAILED, f"{message}\n  hint: {hint}", traceback=traceback
            )
        self.handle_stimulus(Reported(job_id, attempt, parsed))

    def handle_stimulus(self, stimulus: Stimulus) -> None:
        """Pass a stimulus to the lifecycle, and carry out its instructions; never raises.

        An instruction that fails prevents neither the others nor the entries in the histories.
        """
        now_s = time.monotonic()
        instructions = self._contain(stimulus, self.lifecycle.handle, stimulus, now_s) or []
        for instruction in instructions:
            self._contain(stimulus, self._carry_out, instruction, now_s)
        if self.recordings.ending:  # with 1,024 ranks, the set costs more than their reports
            workers = {slot.worker for slot in self.lifecycle.slots}
            self._contain(stimulus, self.recordings.advance, workers, now_s)
        self.keep_history(stimulus, instructions)

    def keep_history(self, stimulus: Stimulus, instructions: Iterable[Instruction]) -> None:
        """Add reports of ranks and changes of jobs' states to the jobs' histories.

        The report is the stimulus, if it is one; the changes of state are the `Move`s among the
        instructions. Never raises; each is added even if another cannot be.
        """
        now_s = time.time()
        if isinstance(stimulus, Reported):
            self._contain(stimulus, self._keep_report, stimulus, now_s)
        # After the report: the attempt's first one has the step at which the job runs again.
        for move in instructions:
            if isinstance(move, Move):
                self._contain(stimulus, self._keep_move, move, now_s)

    def _keep_report(self, report: Reported, now_s: float) -> None:
        job = self.lifecycle.jobs.get(report.job_id)
        if job is None or job.attempt != report.attempt:
            return
        history, entries = self.histories[job.job_id], self.collectors[job.job_id].entries
        new = entries.since(history.num_entries)
        history.num_entries = len(entries)  # first: an entry that fails is not tried again
        try:
            history.observe(job.attempt, report.event, now_s)
        finally:
            history.take(new, now_s)

    def _keep_move(self, move: Move, now_s: float) -> None:
        self.histories[move.job_id].move(move.attempt, move.new, now_s, move.why)

    def _contain(
        self, stimulus: Stimulus, act: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R | None:
        """Return the result of `act`; if it raises, log the exception and return `None`.

        So a bug affects one job only. Only the first exception from each place in the code is
        logged, because reports come often; at level DEBUG all are.
        """
        try:
            return act(*args, **kwargs)
        except Exception as error:
            frames = walk_tb(error.__traceback__)
            place = tuple((frame.f_code.co_filename, line) for frame, line in frames)
            level = logging.DEBUG if place in self._known_bugs else logging.ERROR
            self._known_bugs.add(place)
            log.log(level, "the coordinator failed on %r", stimulus, exc_info=True)
            return None

    def _carry_out(self, instruction: Instruction, now_s: float) -> None:
        match instruction:
            case LaunchGang():
                task = asyncio.ensure_future(self._launch(instruction))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case CheckpointGang():
                self.gangs.command(instruction, "checkpoint")
            case TakeStacks():
                self.gangs.command(instruction, "stacks")
            case StopGang():
                self.gangs.command(instruction, "stop", grace_s=instruction.grace_s)
            case EndGang(job_id, attempt):
                entries = self.collectors[job_id].entries
                try:
                    self.recordings.end_attempt(job_id, entries, self.show(job_id))
                finally:
                    self.gangs.end(job_id, attempt)
            case Move(job_id) if instruction.new.is_final:
                asked, view = self.lifecycle.jobs[job_id].request, self.show(job_id)
                self.recordings.end_job(job_id, asked.run_dir, view, asked.first_attempt, now_s)

    async def _launch(self, gang: LaunchGang) -> None:
        job_id, attempt = gang.job_id, gang.attempt
        job = self.lifecycle.jobs[job_id]
        last = job.restarts[-1] if job.restarts else None
        why = (last.reason, last.message) if last else ()

        def still_wanted() -> bool:
            return job.state is JobState.STARTING and job.attempt == attempt

        try:
            self.collectors[job_id].begin_attempt(attempt, len(gang.placements), *why)
            worker, entries = gang.placements[0].slot.worker, self.collectors[job_id].entries
            self.recordings.begin_attempt(job_id, attempt, worker, entries)
            if not await self.gangs.launch(gang, job.request, still_wanted):
                self._call_off(gang)  # the job was cancelled while the store was opened
        except Exception as error:
            cause = str(error) if isinstance(error, DistrainError) else repr(error)
            message = f"the coordinator could not launch the gang: {cause}"
            self.handle_stimulus(LaunchFailed(job_id, attempt, message))

    def _call_off(self, gang: LaunchGang) -> None:
        for placement in gang.placements:
            ended = RankExited(placement.world.rank, 0, stopped=True)
            self.handle_stimulus(Reported(gang.job_id, gang.attempt, ended))

    def _workers_changed(self, without: str | None = None) -> None:
        workers = {a: s for a, s in self.scheduler.workers.items() if a != without}
        same = {address for address in workers if self.builds.get(address) == build()}
        slots = frozenset(slot_of(workers[address]) for address in same)
        others = {address: self.builds.get(address, "") for address in workers.keys() - same}
        self.handle_stimulus(WorkersChanged(slots, other_builds(others)))

    def _forget_old_jobs(self) -> None:
        ended = [job_id for job_id, job in self.lifecycle.jobs.items() if job.state.is_final]
        ended.sort(key=lambda job_id: self.histories[job_id].state_since_s)
        for number, job_id in enumerate(reversed(ended)):
            # A job whose summary is not written yet is kept longer, but not without limit.
            is_pending = job_id in self.recordings.ending and number < 2 * KEPT_JOBS
            if number < KEPT_JOBS or is_pending:
                self.collectors[job_id].entries.limit(ENDED_ENTRIES)
            else:
                self._bury(job_id)

    def _bury(self, job_id: str) -> None:
        service = self.histories[job_id].service
        self.tombstones.add(tombstone_of(self.lifecycle.jobs[job_id], service))
        self._forget(job_id)

    def _forget(self, job_id: str) -> None:
        self.lifecycle.jobs.pop(job_id, None)
        self.collectors.pop(job_id, None)
        self.histories.pop(job_id, None)
        self.recordings.forget(job_id)
