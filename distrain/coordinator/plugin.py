"""The scheduler shell: carries out what the job machine says, inside the Dask scheduler."""

import asyncio
import time
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin
from distributed.comm.addressing import get_address_host
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from distrain.coordinator.collector import Collector, stall_pct
from distrain.coordinator.machine import (
    Cancel,
    EndGang,
    Failure,
    Instruction,
    LaunchFailed,
    LaunchGang,
    Machine,
    Reported,
    Stimulus,
    StopGang,
    Submit,
    Tick,
    WorkersChanged,
)
from distrain.coordinator.states import JobState
from distrain.coordinator.supervisor import EVENT_OP, STOP_OP, SupervisorPlugin, rank_key, supervise
from distrain.coordinator.view import JobView
from distrain.events import Event, RankExited, RankFailed, from_json
from distrain.placement import Slot
from distrain.spec import JobSpec, parse_spec
from distrain.train.assignment import Assignment, Rendezvous

PLUGIN_NAME = "distrain-coordinator"
TICK_MS = 100
KEPT_JOBS = 200
"""Ended jobs that stay visible; the oldest are forgotten first."""


class CoordinatorPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Places gangs, hosts their rendezvous, merges their metrics and ends them together."""

    name = PLUGIN_NAME
    idempotent = True  # a second client must not replace a coordinator that runs jobs

    async def start(self, scheduler: Scheduler) -> None:
        """Take up work in this scheduler."""
        self.scheduler = scheduler
        self.machine = Machine()
        self.specs: dict[str, JobSpec] = {}
        self.run_dirs: dict[str, str] = {}
        self.collectors: dict[str, Collector] = {}
        self._stores: dict[str, Any] = {}
        self._futures: dict[str, list[Any]] = {}
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        scheduler.handlers.update(
            distrain_submit=self.submit,
            distrain_view=self.view,
            distrain_cancel=self.cancel,
            distrain_jobs=self.list_jobs,
        )
        scheduler.stream_handlers[EVENT_OP] = self.rank_reported
        # Dask adds a plugin after its start. Until then a second client that comes at the same
        # time would start another coordinator, which takes the calls but hears of no worker.
        scheduler.add_plugin(self, name=PLUGIN_NAME)
        await scheduler.register_worker_plugin(
            None, dumps(SupervisorPlugin()), SupervisorPlugin.name, idempotent=True
        )
        self._ticker = PeriodicCallback(lambda: self._tell(Tick()), TICK_MS)
        self._ticker.start()
        self._workers_changed()

    async def close(self) -> None:
        """Let go of everything when the scheduler closes."""
        self._ticker.stop()
        if self._client is not None:
            await self._client.close()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker came."""
        self._workers_changed()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        """A worker left."""
        self._workers_changed(without=worker)

    def transition(self, key: Any, start: str, finish: str, *_: object, **told: Any) -> None:
        """A supervisor failed: nobody else tells how its rank ended."""
        if finish != "erred":
            return
        for job_id, futures in self._futures.items():
            keys = [future.key for future in futures]
            if key in keys:
                rank, attempt = keys.index(key), self.machine.jobs[job_id].attempt
                message = f"rank {rank}: its supervisor failed: {told.get('exception_text', '?')}"
                traceback = told.get("traceback_text") or None
                failure = RankFailed(rank, "RankFailed", message, traceback=traceback)
                self._tell(Reported(job_id, attempt, failure))
                self._tell(Reported(job_id, attempt, RankExited(rank, 1, stopped=False)))
                return

    def submit(self, job_id: str, spec: dict[str, Any], run_dir: str) -> str:
        """RPC: queue a job; submitting the same id again changes nothing."""
        if job_id not in self.specs:
            job_spec = parse_spec(spec)
            self._forget_old_jobs()
            self.specs[job_id] = job_spec
            self.run_dirs[job_id] = run_dir
            self.collectors[job_id] = Collector(job_spec.resources.num_ranks)
            self._tell(
                Submit(
                    job_id,
                    job_spec.resources.num_ranks,
                    job_spec.deadlines.start_s,
                    job_spec.deadlines.total_s,
                )
            )
        return job_id

    def cancel(self, job_id: str) -> None:
        """RPC: end a job."""
        self._tell(Cancel(job_id))

    def list_jobs(self) -> list[dict[str, Any]]:
        """RPC: all jobs, without their records."""
        return [self._view(job_id, since=None).to_json() for job_id in self.machine.jobs]

    def view(self, job_id: str, since: int = 0) -> dict[str, Any] | None:
        """RPC: one job and its records from number `since` on; `None` if unknown."""
        if job_id not in self.machine.jobs:
            return None
        return self._view(job_id, since).to_json()

    def rank_reported(self, job_id: str, attempt: int, event: dict[str, Any], **_: object) -> None:
        """Stream message: a rank, or its supervisor, told something."""
        job = self.machine.jobs.get(job_id)
        parsed: Event
        try:
            parsed = from_json(event)
            if job is not None and job.attempt == attempt:
                self.collectors[job_id].add(parsed)
        except ValueError as error:  # raised, it would close the connection to the worker
            rank = int(event.get("rank", 0))
            message = f"rank {rank}: the scheduler cannot read its report: {error}"
            hint = "Run the same version of distrain on scheduler and workers."
            parsed = RankFailed(rank, "RankFailed", f"{message}\n  hint: {hint}")
        self._tell(Reported(job_id, attempt, parsed))

    def _tell(self, stimulus: Stimulus) -> None:
        for instruction in self.machine.handle(stimulus, time.monotonic()):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case LaunchGang():
                task = asyncio.ensure_future(self._launch(instruction))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case StopGang():
                for placement in instruction.placements:
                    rank = placement.world.rank
                    key = rank_key(instruction.job_id, instruction.attempt, rank)
                    if placement.slot.worker in self.scheduler.stream_comms:
                        message = {"op": STOP_OP, "key": key}
                        self.scheduler.worker_send(placement.slot.worker, message)
            case EndGang():
                self._stores.pop(instruction.job_id, None)
                for future in self._futures.pop(instruction.job_id, []):
                    future.release()

    async def _launch(self, gang: LaunchGang) -> None:
        try:
            await self._connect()
            host = get_address_host(self.scheduler.address)
            store = await asyncio.to_thread(_make_store, host)
            if self.machine.jobs[gang.job_id].state is not JobState.STARTING:
                self._call_off(gang)  # it was cancelled while the store was opened
                return
            self._stores[gang.job_id] = store
            rendezvous = Rendezvous(host, store.port, f"{gang.job_id}/{gang.attempt}")
            self._futures[gang.job_id] = [
                self._submit_rank(gang, index, rendezvous) for index in range(len(gang.placements))
            ]
        except Exception as error:
            message = f"the coordinator could not launch the gang: {error!r}"
            self._tell(LaunchFailed(gang.job_id, gang.attempt, message))

    async def _connect(self) -> None:
        """Make the client that submits the ranks, once, also if gangs are launched together."""
        async with self._connecting:
            if self._client is None:
                self._client = await Client(
                    self.scheduler.address,
                    asynchronous=True,
                    set_as_default=False,
                    security=self.scheduler.security,
                    name=PLUGIN_NAME,
                )

    def _call_off(self, gang: LaunchGang) -> None:
        """Tell the machine that ranks which will never start have ended."""
        for placement in gang.placements:
            ended = RankExited(placement.world.rank, 0, stopped=True)
            self._tell(Reported(gang.job_id, gang.attempt, ended))

    def _submit_rank(self, gang: LaunchGang, index: int, rendezvous: Rendezvous) -> Any:
        placement = gang.placements[index]
        assignment = Assignment(
            gang.job_id,
            gang.attempt,
            placement.world,
            self.specs[gang.job_id].model_dump(mode="json"),
            self.run_dirs[gang.job_id],
            rendezvous,
        )
        assert self._client is not None
        return self._client.submit(
            supervise,
            assignment.dumps(),
            key=rank_key(gang.job_id, gang.attempt, placement.world.rank),
            workers=[placement.slot.worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    def _workers_changed(self, without: str | None = None) -> None:
        slots = frozenset(
            Slot(state.host, address)
            for address, state in self.scheduler.workers.items()
            if address != without
        )
        self._tell(WorkersChanged(slots))

    def _view(self, job_id: str, since: int | None) -> JobView:
        job, collector = self.machine.jobs[job_id], self.collectors[job_id]
        seconds = collector.rank_seconds
        return JobView(
            job_id=job_id,
            name=self.specs[job_id].name,
            state=job.state,
            attempt=job.attempt,
            num_ranks=job.num_ranks,
            reason=job.culprit.reason if job.culprit else None,
            message=_tell_failure(job.culprit) if job.culprit else None,
            why_pending=job.why_pending if job.state is JobState.PENDING else "",
            num_steps=collector.num_steps,
            total_rows=collector.total_rows,
            parameters=collector.parameters,
            reader=collector.reader,
            pids=tuple(status.pid for status in job.ranks.values()),
            records=tuple(collector.records[since:]) if since is not None else (),
            next_record=len(collector.records),
            model_path=collector.model_path,
            rank_stall_pct=tuple(stall_pct(of_rank) for of_rank in seconds),
            rank_seconds=seconds,
            rank_setup_s=collector.rank_setup_s,
            rank_loader=collector.rank_loader,
            rank_exchange=collector.rank_exchange,
            rank_device_seconds=collector.rank_device_seconds,
            rank_peak_memory=collector.rank_peak_memory,
        )

    def _forget_old_jobs(self) -> None:
        ended = [job_id for job_id, job in self.machine.jobs.items() if job.state.is_final]
        for job_id in ended[: max(0, len(self.machine.jobs) - KEPT_JOBS)]:
            for mapping in (self.machine.jobs, self.specs, self.run_dirs, self.collectors):
                mapping.pop(job_id, None)


def _make_store(host: str) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # Port 0 lets the system choose: no race for a free port. The store outlives any rank.
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


def _tell_failure(failure: Failure) -> str:
    parts = [failure.message]
    if failure.traceback:
        parts.append(failure.traceback.rstrip())
    elif failure.log_tail:
        parts.append("its last words:\n" + failure.log_tail.rstrip())
    return "\n".join(parts)


def ensure_coordinator(client: Client) -> None:
    """Make sure that the client's scheduler runs a coordinator.

    A scheduler started with `--preload distrain.preload` has one already; else it is installed.
    """
    client.register_plugin(CoordinatorPlugin(), name=PLUGIN_NAME)
