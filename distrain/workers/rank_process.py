"""Runs one rank's process for its supervisor: starts it, sends commands, reads events, kills it.

The process receives its assignment as the first line of stdin, and commands as further lines. Its
events and its output come through separate pipes. It leads its own session, so that its child
processes are killed with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from distrain.jobs.assignment import Assignment
from distrain.jobs.events import (
    Event,
    RankExited,
    RankFailed,
    StacksTaken,
    TrainingStarted,
    to_json,
)
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec
from distrain.runs.records.merging import ReportJoiner
from distrain.storage.background import BackgroundWriter
from distrain.workers.process_state import GONE, resident_bytes, take_stacks
from distrain.workers.rank_log import LogPump, RankLogWriter

RANK_PROGRAM = (sys.executable, "-P", "-m", "distrain.train.rank")
EVENT_LINE_LIMIT_BYTES = 64 * 2**20
MEMORY_POLL_S = 0.25
DRAIN_S = 2.0
"""How long pipes are read after the process has ended, since its children may keep them open.

Also the longest wait afterwards for the log to be written.
"""

SETTLE_S = 10.0  # how long the last uploads may delay the report of a rank's end
OPEN_S = 10.0  # how long to wait for a log to open before the rank starts anyway

ALLOCATOR = {
    # glibc returns a step's large tensors to the kernel, which then clears each page again for
    # the next step; Dask's nannies lower its limits further. A rank keeps its memory (docs/log.md).
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


class RankProcess:
    """One rank's process.

    Args:
        assignment: The rank's work.
        report: Called with each event of the rank and of its supervisor, as JSON values.
        program: The command line of the process, to which two numbers are added: the file
            descriptor for events, and this process's id.
        interface: The network interface for gloo and NCCL; `None` leaves the choice to them.
        ipv6: Whether other ranks reach this host at an IPv6 address.
        settle: Called in a thread before the end is reported, to upload the written files.
    """

    def __init__(
        self,
        assignment: Assignment,
        report: Callable[[dict[str, Any]], None],
        program: Sequence[str] = RANK_PROGRAM,
        interface: str | None = None,
        ipv6: bool = False,
        settle: Callable[[], object] | None = None,
    ):
        self._settle = settle
        self.assignment = assignment
        self._program = program
        self._interface, self._ipv6 = interface, ipv6
        self.spec = parse_spec(assignment.spec)
        self._rank = assignment.world.rank
        self._report = report
        self._joiner = ReportJoiner(self.spec.log_every_s)
        self._writer: BackgroundWriter | None = None
        self._log: RankLogWriter | None = None
        self._process: asyncio.SubprocessTransport | None = None
        self._trains = False
        self._stopped = False
        self._kill_timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run the process to its end, and report its events; return its exit code.

        The last event is `RankExited`. If the log cannot be opened or the process cannot be
        started, a `RankFailed` is reported before it, and 1 returned. If the rank was stopped
        before this call, nothing is started, and 0 returned.
        """
        if self._stopped:
            self._report_event(RankExited(self._rank, 0, stopped=True))
            return 0
        paths, attempt = self.assignment.paths, self.assignment.attempt
        self._writer = BackgroundWriter(f"distrain-files-of-rank-{self._rank}")
        self._log = log = RankLogWriter(paths.log(self._rank, attempt), self._writer)
        try:
            await log.open(OPEN_S)
            return await self._run(log)
        except OSError as error:
            return self._could_not_start(error)
        finally:
            log.close()
            self._writer.close()

    def command(self, message: dict[str, Any]) -> None:
        """Send a command to the process; does nothing if it has ended or is not started yet."""
        if self._process is not None:
            self._write(self._process, json.dumps(message))

    def stop(self, number: int, grace_s: float) -> None:
        """Have the rank save a checkpoint and end, and kill it after `grace_s`; returns at once.

        A rank that does not train yet is killed immediately, and so is any rank if `grace_s` is 0.
        `number` is the command's number, which is equal on all ranks.
        """
        self._stopped = True
        # Before the training has started, there is nothing to save.
        if grace_s <= 0 or self._process is None or not self._trains:
            self.kill()
            return
        self.command({"op": "stop", "number": number, "grace_s": grace_s})
        timer = asyncio.get_running_loop().call_later(grace_s, self.kill)
        self._kill_timers.append(timer)

    def kill(self) -> None:
        """Kill the rank's processes now, or as soon as the rank has started."""
        self._stopped = True
        self._kill_group()

    def fail(self, reason: Reason, message: str) -> None:
        """Report a failure on behalf of the rank, and kill its processes."""
        self._report_event(RankFailed(self._rank, reason, f"rank {self._rank}: {message}"))
        self._kill_group()

    def ask_for_stacks(self) -> None:
        """Report the process's state and stacks as `StacksTaken`, later; returns at once."""
        self._begin(self._take_stacks())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_stacks(self) -> None:
        state, stacks = GONE, ""
        is_running = self._process is not None and self._process.get_returncode() is None
        if self._process is not None and self._log is not None and is_running:
            state, stacks = await take_stacks(self._process.get_pid(), self._log)
        self._report_event(StacksTaken(self._rank, state, stacks))

    async def _run(self, log: RankLogWriter) -> int:
        assert self._writer is not None
        loop = asyncio.get_running_loop()
        event_read, event_write = os.pipe()
        log_read, log_write = os.pipe()
        reader = asyncio.StreamReader(limit=EVENT_LINE_LIMIT_BYTES)
        # From here on the transports own and close the pipes' ends.
        events, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(event_read, "rb", 0)
        )
        printed, pump = await loop.connect_read_pipe(
            lambda: LogPump(log), os.fdopen(log_read, "rb", 0)
        )
        try:
            try:
                self._process, self._exit = await self._start(event_write, log_write)
            finally:
                os.close(event_write)
                os.close(log_write)
            exit_code = await self._accompany(self._process, reader, pump)
        finally:
            await self._end()
            events.close()
            printed.close()
        log.close()
        await self._writer.done(DRAIN_S)  # so that the log is complete when the end is reported
        if self._settle is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._settle), SETTLE_S)
        self._report_event(RankExited(self._rank, exit_code, self._stopped, log.last_lines))
        return exit_code

    async def _start(
        self, event_write: int, log_write: int
    ) -> tuple[asyncio.SubprocessTransport, "_Exit"]:
        return await asyncio.get_running_loop().subprocess_exec(
            _Exit,
            *self._program,
            str(event_write),
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=log_write,
            stderr=log_write,
            pass_fds=(event_write,),
            env=_environment(self.spec, self._interface, self._ipv6),
            start_new_session=True,
        )

    async def _accompany(
        self, process: asyncio.SubprocessTransport, reader: asyncio.StreamReader, pump: LogPump
    ) -> int:
        forward = asyncio.create_task(self._forward_events(reader))
        limit = asyncio.create_task(self._limit_memory(process.get_pid()))
        exited = asyncio.create_task(self._exit.seen.wait())
        try:
            if self._stopped:  # it was stopped while it was being started
                self.kill()
            self._write(process, self.assignment.dumps())
            await asyncio.wait({forward, exited}, return_when=asyncio.FIRST_COMPLETED)
            if forward.done():  # its pipe has ended; raise the error of an unreadable event
                forward.result()
            await exited
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(forward, pump.ended.wait()), DRAIN_S)
            exit_code = process.get_returncode()
            assert exit_code is not None
            return exit_code
        finally:
            for task in (forward, limit, exited):
                task.cancel()

    def _write(self, process: asyncio.SubprocessTransport, line: str) -> None:
        stdin = process.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        if not stdin.is_closing():
            stdin.write(line.encode() + b"\n")

    async def _forward_events(self, reader: asyncio.StreamReader) -> None:
        while line := await self._next_line(reader):
            if line.endswith(b"\n"):  # a killed rank may leave half a line
                event = json.loads(line)
                self._trains |= event.get("kind") == TrainingStarted.kind
                self._send(event)

    async def _next_line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readline()
        except ValueError:
            most = f"{EVENT_LINE_LIMIT_BYTES // 2**20} MiB"
            self.fail(Reason.RANK_FAILED, f"it sent an event of more than {most}, and was killed")
            return b""

    async def _limit_memory(self, pid: int) -> None:
        most_gib = self.spec.resources.memory_per_rank_gib
        while most_gib is not None:
            held_gib = resident_bytes(pid) / 2**30
            if held_gib > most_gib:
                self.fail(
                    Reason.OUT_OF_MEMORY,
                    f"its process held {held_gib:.2f} GiB of host memory; "
                    f"resources.memory_per_rank_gib is {most_gib:g}\n"
                    "  hint: `distrain plan` shows the memory of each part.",
                )
                return
            await asyncio.sleep(MEMORY_POLL_S)

    async def _end(self) -> None:
        """Kill the process group, even if this task was cancelled, so that no process is left."""
        for timer in self._kill_timers:
            timer.cancel()
        self._kill_group()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit.seen.wait(), DRAIN_S)
            self._process.close()

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.get_pid(), signal.SIGKILL)

    def _could_not_start(self, error: OSError) -> int:
        self._report_event(RankFailed(self._rank, Reason.OUTPUT_ERROR, f"cannot start: {error}"))
        self._report_event(RankExited(self._rank, 1, stopped=False))
        return 1

    def _report_event(self, event: Event) -> None:
        self._send(to_json(event))

    def _send(self, event: Mapping[str, Any]) -> None:
        for one in self._joiner.take(event):
            self._report(dict(one))


class _Exit(asyncio.SubprocessProtocol):
    """Sets the event `seen` when the process ends, even if its children keep its pipes open."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()

    def process_exited(self) -> None:
        self.seen.set()


def _environment(spec: JobSpec, interface: str | None, ipv6: bool) -> dict[str, str]:
    env = dict(os.environ) | ALLOCATOR
    threads = str(spec.resources.threads_per_rank)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = threads
    env["PYTHONUNBUFFERED"] = "1"
    # Starts the communicators' kernels in the order of the host's calls; ignored on CPUs.
    env.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
    if interface is not None:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # "=": that name, not a prefix
        if ipv6:
            env.setdefault("NCCL_SOCKET_FAMILY", "AF_INET6")  # by default NCCL prefers IPv4
    return env
