"""A rank's process: `python -m distrain.train.rank EVENT_FD SUPERVISOR_PID < assignment`.

Events go as JSON lines to a pipe of their own, so that whatever libraries print lands in the log
and cannot garble them.
"""

import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TextIO

from distrain.events import Event, RankFailed, RankStarted, to_json
from distrain.train.assignment import Assignment

PR_SET_PDEATHSIG = 1

log = logging.getLogger("distrain.rank")


def run_rank(assignment: Assignment, report: Callable[[Event], None]) -> RankFailed | None:
    """Do one rank's work in this process.

    Args:
        assignment: The work.
        report: Takes the rank's events; a failure is both reported and returned.
    """
    from distrain.train.failures import explain_failure

    try:
        _train(assignment, report)
    except Exception as error:
        failure = explain_failure(error, assignment.world.rank)
        report(failure)
        return failure
    return None


def _train(assignment: Assignment, report: Callable[[Event], None]) -> None:
    import torch

    from distrain.train.inputs import check_inputs
    from distrain.train.loop import Trainer
    from distrain.train.machine import check_same_data, choose_device, join_peers, seed_everything

    spec, world = assignment.job_spec, assignment.world
    device = choose_device(spec.resources)
    torch.set_num_threads(spec.resources.threads_per_rank)
    seed_everything(spec.train.seed, device)
    report(RankStarted(world.rank, os.getpid(), socket.gethostname(), str(device)))
    log.info("rank %d of %d of %s on %s", world.rank, world.num_ranks, assignment.job_id, device)
    inputs = check_inputs(spec)
    join_peers(assignment, device, spec.deadlines.collective_s)
    check_same_data(inputs.fingerprint, world.rank)
    log.info("met its peers; %d rows in %s", inputs.train.num_rows, ", ".join(spec.data.train))
    Trainer(spec, inputs, world, device, assignment.paths, report).run()
    log.info("did all its work")


def main() -> None:
    """The process's entry: never returns."""
    event_fd, supervisor_pid = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(supervisor_pid)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    events = os.fdopen(event_fd, "w", encoding="utf-8")
    assignment = Assignment.loads(sys.stdin.readline())
    failure = run_rank(assignment, lambda event: _write(events, event))
    if failure is None:
        _leave_peers()
    else:
        log.error("%s", "\n".join(filter(None, (failure.message, failure.traceback))))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: gloo's threads sometimes abort the interpreter's orderly end. The rank is
    # judged by what it reported.
    os._exit(1 if failure else 0)


def _write(events: TextIO, event: Event) -> None:
    events.write(json.dumps(to_json(event)) + "\n")
    events.flush()


def _die_with_parent(supervisor_pid: int) -> None:
    """Have the kernel kill this process when the Dask worker dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:  # it died before we asked
        os._exit(1)


def _leave_peers() -> None:
    from torch import distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
