"""A rank's process: `python -m distrain.train.rank EVENT_FD SUPERVISOR_PID < assignment, commands`.

Events are JSON lines in a separate pipe, so that output of libraries, which is part of the log,
cannot corrupt them. Besides the training thread, threads of the process execute commands
(`Commands`), report heartbeats, detect SIGTERM, and end the process at the deadline of a stop
(`control/stop_deadline.py`).
"""

import ctypes
import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from distrain.errors import STOP_SIGNALS
from distrain.jobs.assignment import Assignment
from distrain.jobs.events import Event, Heartbeat, RankFailed, RankStarted, StopNoticed, to_json
from distrain.jobs.spec.load import parse_spec

if TYPE_CHECKING:
    from distrain.train.control.control import Control

PR_SET_PDEATHSIG = 1
STACKS_SIGNAL = signal.SIGUSR2
LONGEST_PERIOD_S = 1.0
_BEATS_PER_DEADLINE = 4

log = logging.getLogger("distrain.rank")


def run_rank(
    assignment: Assignment, report: Callable[[Event], None], control: "Control | None" = None
) -> RankFailed | None:
    """Do one rank's work in this process; return `None` if it succeeds or was stopped.

    An error is not raised. It is reported as `RankFailed`, and returned.
    """
    from distrain.train.rank.failures import explain_failure

    try:
        _train(assignment, report, control)
    except Exception as error:
        failure = explain_failure(error, assignment.world.rank)
        report(failure)
        return failure
    return None


def _train(
    assignment: Assignment, report: Callable[[Event], None], control: "Control | None"
) -> None:
    import torch

    from distrain.jobs.devices import device_name
    from distrain.train.control.control import Control
    from distrain.train.control.rank_setup import (
        check_same_data,
        choose_device,
        join_peers,
        leave_peers,
        seed_everything,
    )
    from distrain.train.data.inputs import check_inputs
    from distrain.train.loop.trainer import Trainer
    from distrain.train.timing.phases import PEERS, READER, waiting

    spec, world = parse_spec(assignment.spec), assignment.world
    device = choose_device(spec.resources)
    torch.set_num_threads(spec.resources.threads_per_rank)
    seed_everything(spec.train.seed, world.rank, device)
    hardware = device_name(device)
    report(RankStarted(world.rank, os.getpid(), socket.gethostname(), str(device), hardware))
    log.info("rank %d of %d of %s on %s", world.rank, world.num_ranks, assignment.job_id, device)
    with waiting(READER):
        inputs = check_inputs(spec, spec.data.retry_s, assignment.paths.tables)
    with waiting(PEERS):
        join_peers(assignment, device, spec.deadlines.collective_s)
        check_same_data(inputs.fingerprint, world.rank)
    log.info(
        "the rank is connected to the other ranks; %d rows in %s",
        inputs.train.num_rows,
        ", ".join(spec.data.train),
    )
    trainer = Trainer(
        spec,
        inputs,
        world,
        device,
        assignment.paths,
        report,
        assignment.job_id,
        assignment.attempt,
        control or Control.alone(),
        assignment.first_attempt,
    )
    if trainer.run():
        leave_peers()
        log.info("the rank has done all its work")
    else:  # a thread may wait for a peer, which only the end of the process ends
        log.info("the rank has stopped as requested")


def main() -> None:
    """Run a rank with the assignment in the first line of stdin; never returns.

    The process exits with 1 if the rank has failed, otherwise with 0.
    """
    gc.set_threshold(50_000)  # imports make many objects and leave no garbage
    # The signals are blocked in this thread, and so in all later ones: only the thread of
    # `_notice_stops` receives them, even if all others are stuck.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    event_fd, supervisor_pid = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(supervisor_pid)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    report = _reporter(os.fdopen(event_fd, "w", encoding="utf-8"))
    assignment = Assignment.loads(sys.stdin.readline())
    # Prints the stacks of all threads, even if they are stuck in C code.
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    _notice_stops(assignment.world.rank, report)
    failure = _run_supervised(assignment, report)
    if failure is not None:
        log.error("%s", "\n".join(filter(None, (failure.message, failure.traceback))))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: gloo's threads sometimes abort the interpreter's shutdown, and a thread that
    # makes routes may wait for a peer. The rank's result is what it has reported.
    os._exit(1 if failure else 0)


def _run_supervised(assignment: Assignment, report: Callable[[Event], None]) -> RankFailed | None:
    """Do a rank's work with heartbeats and commands; the result is that of `run_rank`."""
    from distrain.train.control.control import Commands, Control
    from distrain.train.rank.failures import explain_failure

    deadlines, rank = parse_spec(assignment.spec).deadlines, assignment.world.rank
    try:
        control = Control.supervised(
            assignment, report, lambda: os._exit(0), timeout_s=deadlines.collective_s
        )
    except Exception as error:
        failure = explain_failure(error, rank)
        report(failure)
        return failure
    assert control.stop_deadline is not None
    every_s = heartbeat_period_s(deadlines.progress_s)
    start_heartbeats(lambda: control.heartbeat(rank), report, every_s)
    commands = Commands(control.agreement, control.stop_deadline)
    commands.listen(sys.stdin, at_end=_end_without_supervisor)
    return run_rank(assignment, report, control)


def heartbeat_period_s(progress_s: float | None) -> float:
    """Return the seconds between heartbeats: a quarter of `deadlines.progress_s`, at most 1.

    Without such a deadline (`None`), it is 1.

    >>> heartbeat_period_s(300.0), heartbeat_period_s(2.0), heartbeat_period_s(None)
    (1.0, 0.5, 1.0)
    """
    if progress_s is None:
        return LONGEST_PERIOD_S
    return min(LONGEST_PERIOD_S, progress_s / _BEATS_PER_DEADLINE)


def start_heartbeats(
    beat: Callable[[], Heartbeat], report: Callable[[Event], None], every_s: float
) -> Callable[[], None]:
    """Report a heartbeat every `every_s` seconds from a thread; return a function that ends it."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            report(beat())

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
    return ended.set


def _end_without_supervisor() -> None:
    """End the process: the pipe is closed, so this rank's events would be lost."""
    log.error("the supervisor has ended")
    os._exit(1)


def _reporter(events: TextIO) -> Callable[[Event], None]:
    lock = threading.Lock()

    def report(event: Event) -> None:
        line = json.dumps(to_json(event)) + "\n"
        with lock:
            events.write(line)
            events.flush()

    return report


def _notice_stops(rank: int, report: Callable[[Event], None]) -> None:
    """Start a thread that reports a signal to stop, such as SIGTERM, to the coordinator.

    The coordinator then stops all ranks.
    """

    def wait() -> None:
        number = signal.sigwait(STOP_SIGNALS)
        report(StopNoticed(rank, signal.Signals(number).name))

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _die_with_parent(supervisor_pid: int) -> None:
    """Make Linux kill this process when its parent, the supervisor's process, dies.

    Ends this process now if the parent has died already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:  # the parent died before the call
        os._exit(1)
