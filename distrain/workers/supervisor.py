"""Supervises rank processes in a Dask worker: a task (`supervise`) for each, and a worker plugin.

The task starts the rank's process, and sends its events to the coordinator. The plugin executes the
coordinator's commands. The supervisor of rank 0 also writes the records of its attempt, which the
coordinator sends.

A rank is a subprocess, not a thread of the Dask worker: a thread cannot be killed, torch allows
one default process group per process, and NCCL's watchdog ends its whole process.
"""

import asyncio
import re
from collections import deque
from dataclasses import replace
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host

from distrain.errors import ClusterError, DistrainError
from distrain.jobs.assignment import Assignment
from distrain.jobs.events import RankExited, RankFailed, RecordsTrouble, to_json
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.runs.finish_run import finish_run
from distrain.runs.run_file import paths_of
from distrain.storage.background import in_thread
from distrain.storage.urls import is_remote
from distrain.version import build
from distrain.workers.attempt_records import END_S, AttemptRecords
from distrain.workers.network_interface import choose_interface, speaks_ipv6
from distrain.workers.rank_process import RankProcess
from distrain.workers.rank_upload import RankUpload, files_dir
from distrain.workers.worker_shutdown import (
    LEAVE_RPC,
    RANKS_RPC,
    DeferredSigterm,
    LifetimeNotice,
)

EVENT_OP = "distrain-event"
SUMMARY_S = 30.0  # how long the filesystem may take for a summary
UPLOADED_S = 30.0  # how long the upload of a rank's last files may take
LEAVING_OP = "distrain-leaving"
COMMAND_OP = "distrain-command"
SUMMARY_OP = "distrain-summary"
RECORDED_OP = "distrain-recorded"
BUILD_OP = "distrain-build"


class SupervisorPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Executes the coordinator's commands for the ranks of one Dask worker.

    `running` has the ranks' processes, and `records` the open records of attempts whose rank 0 is
    here, both by the Dask keys of the supervisors' tasks.
    """

    name = "distrain-supervisor"

    def setup(self, worker: Worker) -> None:
        self.worker = worker
        self.running: dict[str, RankProcess] = {}
        self.records: dict[str, AttemptRecords] = {}
        # A stop may arrive before the task that it is for.
        self.stopped_early: deque[str] = deque(maxlen=1000)
        self._tasks: set[asyncio.Task[None]] = set()
        worker.stream_handlers[COMMAND_OP] = self.command
        worker.stream_handlers[SUMMARY_OP] = self.write_summary
        worker.handlers[LEAVE_RPC] = self.leave
        worker.handlers[RANKS_RPC] = self.count_ranks
        self.deferred_sigterm = DeferredSigterm(
            worker, self.leave, lambda: bool(self.count_ranks())
        )
        self.lifetime_notice = LifetimeNotice(worker, self.leave, self.grace_s)
        worker.batched_send({"op": BUILD_OP, "build": build()})

    def command(self, key: str, words: dict[str, Any], **_: object) -> None:
        """Stream message: execute a command of the coordinator.

        `key` is the Dask key of the supervisor's task; `words` has the command's name as `op`, and
        its values.
        """
        if words["op"] in ("record", "end_records"):
            self._record(key, words)
            return
        process = self.running.get(key)
        if process is None:
            if words["op"] == "stop":
                self.stopped_early.append(key)
        elif words["op"] == "stop":
            process.stop(words["number"], words["grace_s"])
        elif words["op"] == "stacks":
            process.ask_for_stacks()
        else:
            process.command(words)

    def _record(self, key: str, words: dict[str, Any]) -> None:
        records = self.records.get(key)
        if records is None:
            return
        records.write(words["lines"])
        if words["op"] == "end_records":
            records.end()

    def write_summary(
        self, job_id: str, run_dir: str, view: dict[str, Any], first_attempt: int, **_: object
    ) -> None:
        """Stream message: write the summary of an ended job, and answer with `RECORDED_OP`.

        The job's ranks may have run on other workers. `view` is a `JobView` as JSON values.
        """

        def write() -> None:
            finish_run(paths_of(run_dir), JobView.from_json(view), first_attempt)

        async def write_and_report() -> None:
            error = ""
            try:
                await in_thread(write, SUMMARY_S)
            except TimeoutError:
                error = f"{run_dir} does not answer"
            except (DistrainError, OSError) as failure:
                error = str(failure)
            self.worker.batched_send(
                {"op": RECORDED_OP, "job_id": job_id, "attempt": None, "error": error}
            )

        # Not a Dask task, which would wait for another job's rank on this worker.
        task = asyncio.ensure_future(write_and_report())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, why: str) -> float:
        """RPC: tell the coordinator that this worker will leave; return the ranks' grace period.

        The coordinator stops the ranks, and places no more ranks here. The result is in seconds; 0
        if the worker has no ranks.
        """
        self.worker.batched_send({"op": LEAVING_OP, "worker": self.worker.address, "why": why})
        return self.grace_s()

    def grace_s(self) -> float:
        """Return the longest `deadlines.stop_grace_s` of this worker's ranks; 0 without ranks."""
        running = self.running.values()
        return max((process.spec.deadlines.stop_grace_s for process in running), default=0.0)

    def count_ranks(self) -> int:
        """RPC: return the number of ranks that run, or whose records are not closed yet."""
        return len(self.running.keys() | self.records.keys())

    def transition(self, key: Any, start: str, finish: str, *_: object, **__: object) -> None:
        """Kill the rank of a task that Dask has released; report the end of one that never began.

        A task waits while another task has the worker's thread. The coordinator uses the worker
        again only if it hears that no rank is left there.
        """
        if key in self.running and finish in ("released", "cancelled", "forgotten"):
            self.running[key].kill()
        elif start in ("waiting", "ready") and finish == "released" and (whose := rank_of_key(key)):
            job_id, attempt, rank = whose
            event = to_json(RankExited(rank, 0, stopped=True))
            self.worker.batched_send(
                {"op": EVENT_OP, "job_id": job_id, "attempt": attempt, "event": event}
            )

    def teardown(self, worker: Worker) -> None:
        self.deferred_sigterm.close()
        self.lifetime_notice.close()
        for process in self.running.values():
            process.kill()


async def supervise(assignment_text: str) -> int:
    """Run one rank to its end, and return its exit code; called as a Dask task on its worker.

    `assignment_text` is an `Assignment` as JSON text. If the rank cannot be started, its
    `RankFailed` and `RankExited` are sent, and 1 is returned.
    """
    assignment = Assignment.loads(assignment_text)
    worker = get_worker()
    plugin: SupervisorPlugin = worker.plugins[SupervisorPlugin.name]
    about = {"job_id": assignment.job_id, "attempt": assignment.attempt}

    def report(event: dict[str, Any]) -> None:
        worker.batched_send({"op": EVENT_OP, **about, "event": event})

    rank, host = assignment.world.rank, get_address_host(worker.address)
    key = rank_key(assignment.job_id, assignment.attempt, rank)

    def refuse(reason: Reason, text: str) -> int:
        report(to_json(RankFailed(rank, reason, f"rank {rank}: {text}")))
        report(to_json(RankExited(rank, 1, stopped=False)))
        return 1

    def trouble(error: str, ends: bool) -> None:
        if key not in plugin.running:
            return
        if ends:
            plugin.running[key].fail(Reason.OUTPUT_ERROR, error)
        else:
            report(to_json(RecordsTrouble(rank, error)))

    try:
        interface = choose_interface(host)
    except ClusterError as error:
        return refuse(Reason.INVALID_SPEC, str(error))
    upload = records = None
    try:
        if is_remote(assignment.run_dir):
            assignment, upload = _with_upload(assignment, worker.local_directory)
        if rank == 0:
            records = AttemptRecords(assignment, trouble)
            await records.open()
            plugin.records[key] = records
        process = RankProcess(
            assignment,
            report,
            interface=interface,
            ipv6=speaks_ipv6(interface, host),
            settle=None if upload is None else upload.upload_new,
        )
        plugin.running[key] = process
        if key in plugin.stopped_early:
            process.kill()
        try:
            return await process.run()
        finally:
            del plugin.running[key]
    except (DistrainError, OSError) as error:
        return refuse(Reason.OUTPUT_ERROR, f"cannot write on its worker: {error}")
    finally:
        if records is not None:
            more = key in plugin.records and _has_scheduler(worker)
            await records.close(END_S if more else 0.0)
            plugin.records.pop(key, None)
        if upload is not None:
            await asyncio.to_thread(upload.close, UPLOADED_S)
        if records is not None:
            worker.batched_send({"op": RECORDED_OP, **about, "error": ""})


def _has_scheduler(worker: Worker) -> bool:
    """Return True if the worker is connected to its scheduler.

    Otherwise the worker will end, and no further records of the attempt arrive.
    """
    comm = worker.batched_stream.comm
    return comm is not None and not comm.closed()


def _with_upload(assignment: Assignment, local_directory: str) -> tuple[Assignment, RankUpload]:
    """Return the assignment with a new folder on this worker for the rank's files.

    Also returns a started upload of that folder to the run folder in the object store.
    """
    rank, attempt = assignment.world.rank, assignment.attempt
    folder = files_dir(local_directory, assignment.job_id, attempt, rank)
    assignment = replace(assignment, files_dir=str(folder))
    upload = RankUpload(assignment.paths, rank, attempt)
    upload.start()
    return assignment, upload


def rank_key(job_id: str, attempt: int, rank: int) -> str:
    """Return the Dask key of the task that supervises a rank, as shown in the Dask dashboard.

    >>> rank_key("dlrm-7f3a", 1, 0)
    'distrain-dlrm-7f3a-a1-r0'
    """
    return f"distrain-{job_id}-a{attempt}-r{rank}"


def rank_of_key(key: object) -> tuple[str, int, int] | None:
    """Return the job, attempt and rank of which `key` is the `rank_key`; `None` for other keys.

    >>> rank_of_key("distrain-dlrm-7f3a-a1-r0")
    ('dlrm-7f3a', 1, 0)
    """
    match = re.fullmatch(r"distrain-(.+)-a(\d+)-r(\d+)", key) if isinstance(key, str) else None
    return (match[1], int(match[2]), int(match[3])) if match else None
