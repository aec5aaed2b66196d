"""The worker shell: start one rank's process, pass on what it says, end it when told to.

A rank is a subprocess, not a thread of the Dask worker: a thread cannot be killed, torch allows
one default process group per process, and NCCL's watchdog ends the process it runs in.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

from distrain.coordinator.machine import STOP_GRACE_S
from distrain.events import RankExited, RankFailed, to_json
from distrain.train.assignment import Assignment

EVENT_OP = "distrain-event"
STOP_OP = "distrain-stop"
LOG_TAIL_LINES = 30
LOG_TAIL_BYTES = 2**16
"""A log may be of any length; reading all of it would hold up the worker."""
EVENT_LINE_LIMIT_BYTES = 64 * 2**20

ALLOCATOR = {
    # glibc gives a step's large tensors back to the kernel, which clears each page again for the
    # next step; Dask's nannies make it keener still. A rank keeps its memory (docs/log.md).
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


class SupervisorPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """Holds the rank processes of one Dask worker, so that the coordinator can stop them."""

    name = "distrain-supervisor"

    def setup(self, worker: Worker) -> None:
        """Make the worker listen for stop messages."""
        self.running: dict[str, RankProcess] = {}
        # A stop may overtake the task that it is meant for.
        self.stopped_early: deque[str] = deque(maxlen=1000)
        worker.stream_handlers[STOP_OP] = self.stop

    def stop(self, key: str, **_: object) -> None:
        """Begin to end the rank process of that key, or keep it from starting."""
        if key in self.running:
            self.running[key].request_stop()
        else:
            self.stopped_early.append(key)

    def transition(self, key: Any, start: str, finish: str, **_: object) -> None:
        """Dask gave up a task that runs: its rank must not outlive it."""
        if key in self.running and finish in ("released", "cancelled", "forgotten"):
            self.running[key].kill()

    def teardown(self, worker: Worker) -> None:
        """Leave no rank behind when the worker closes."""
        for process in self.running.values():
            process.kill()


async def supervise(assignment_text: str) -> int:
    """Run one rank to its end: the body of the pinned Dask task.

    Returns:
        The process's exit code.
    """
    assignment = Assignment.loads(assignment_text)
    worker = get_worker()
    plugin: SupervisorPlugin = worker.plugins[SupervisorPlugin.name]
    process = RankProcess(assignment, worker.batched_send)
    key = rank_key(assignment.job_id, assignment.attempt, assignment.world.rank)
    plugin.running[key] = process
    if key in plugin.stopped_early:
        process.request_stop()
    try:
        return await process.run()
    finally:
        del plugin.running[key]


def rank_key(job_id: str, attempt: int, rank: int) -> str:
    """The Dask key of a rank's supervisor; it is what the Dask dashboard shows.

    >>> rank_key("dlrm-7f3a", 1, 0)
    'distrain-dlrm-7f3a-a1-r0'
    """
    return f"distrain-{job_id}-a{attempt}-r{rank}"


class RankProcess:
    """One rank's process.

    Args:
        assignment: Its work.
        send: Takes messages for the scheduler.
    """

    def __init__(self, assignment: Assignment, send: Any):
        self.assignment = assignment
        self._send = send
        self._process: asyncio.subprocess.Process | None = None
        self._stop_requested = asyncio.Event()

    async def run(self) -> int:
        """Start it, forward its events, wait for its end and report that."""
        rank = self.assignment.world.rank
        if self._stop_requested.is_set():
            self._report(to_json(RankExited(rank, 0, stopped=True)))
            return 0
        log_path = self.assignment.paths.log(rank, self.assignment.attempt)
        read_fd, write_fd = os.pipe()
        try:
            try:
                await self._start(log_path, write_fd)
            finally:
                os.close(write_fd)
        except OSError as error:
            os.close(read_fd)
            self._report(to_json(RankFailed(rank, "OutputError", f"cannot start: {error}")))
            self._report(to_json(RankExited(rank, 1, stopped=False)))
            return 1
        assert self._process is not None
        stopper = asyncio.create_task(self._stop_when_requested())
        try:
            await self._forward_events(read_fd)
            exit_code = await self._process.wait()
        finally:
            self._kill()  # a cancelled task must not leave its rank behind
            stopper.cancel()
        tail = _last_lines(log_path)
        stopped = self._stop_requested.is_set()
        self._report(to_json(RankExited(rank, exit_code, stopped, tail)))
        return exit_code

    def request_stop(self) -> None:
        """Ask the rank to end: SIGTERM, a grace, SIGKILL."""
        self._stop_requested.set()

    def kill(self) -> None:
        """End the rank now, or as soon as it has started."""
        self._stop_requested.set()
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _start(self, log_path: Path, write_fd: int) -> None:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log_file:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "distrain.train.rank",
                str(write_fd),
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=log_file,
                stderr=log_file,
                pass_fds=(write_fd,),
                env=_environment(self.assignment),
            )
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it died already; its exit code will tell
            self._process.stdin.write(self.assignment.dumps().encode() + b"\n")
            await self._process.stdin.drain()
            self._process.stdin.close()

    async def _forward_events(self, read_fd: int) -> None:
        reader = asyncio.StreamReader(limit=EVENT_LINE_LIMIT_BYTES)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(read_fd, "rb", 0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await reader.readline():
                if line.endswith(b"\n"):  # a killed rank may leave half a line
                    self._report(json.loads(line))
        finally:
            transport.close()

    async def _stop_when_requested(self) -> None:
        await self._stop_requested.wait()
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        await asyncio.sleep(STOP_GRACE_S)
        self._kill()

    def _report(self, event: dict[str, Any]) -> None:
        self._send(
            {
                "op": EVENT_OP,
                "job_id": self.assignment.job_id,
                "attempt": self.assignment.attempt,
                "event": event,
            }
        )


def _environment(assignment: Assignment) -> dict[str, str]:
    env = dict(os.environ) | ALLOCATOR
    threads = str(assignment.job_spec.resources.threads_per_rank)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = threads
    env["PYTHONUNBUFFERED"] = "1"
    return env


def _last_lines(path: Path) -> str:
    try:
        with path.open("rb") as log_file:
            size_bytes = log_file.seek(0, os.SEEK_END)
            log_file.seek(max(0, size_bytes - LOG_TAIL_BYTES))
            lines = log_file.read().decode(errors="replace").splitlines(keepends=True)
    except OSError:
        return ""
    return "".join(lines[-LOG_TAIL_LINES:])
