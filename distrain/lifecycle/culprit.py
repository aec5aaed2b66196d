"""Reported failures of ranks, and which of them brought the others about."""

import math
import signal
from collections.abc import Sequence
from dataclasses import replace

from distrain.events import RankExited, RankFailed
from distrain.jobs import Reason
from distrain.lifecycle.job import Failure, Job, RankStatus


def find_culprit(failures: Sequence[Failure]) -> Failure:
    """The failure that brought the others about.

    It is the first that is not about a lost peer; among losses that became NaN, the one at the
    earliest step.

    >>> lost = Failure("PeerLost", "connection reset", rank=0)
    >>> dead = Failure("RankDied", "killed by SIGKILL", rank=1)
    >>> find_culprit([lost, dead]).rank
    1
    """
    cancelled = [failure for failure in failures if failure.reason == Reason.CANCELLED]
    causes = [failure for failure in failures if failure.reason != Reason.PEER_LOST]
    first = [*cancelled, *causes, *failures][0]
    if first.reason != Reason.NON_FINITE_LOSS:
        return first
    # All ranks run into the same broken step; reports of later steps may come first.
    same = [failure for failure in causes if failure.reason == first.reason]
    return min(same, key=lambda failure: math.inf if failure.step is None else failure.step)


def reported_failure(event: RankFailed) -> Failure:
    return Failure(event.reason, event.message, event.rank, event.step, event.traceback)


def silent_death(event: RankExited, status: RankStatus) -> Failure:
    """The failure of a rank that ended without a report."""
    place = place_of(status)
    if event.exit_code < 0:
        name = _signal_name(-event.exit_code)
        message = f"rank {event.rank} ({place}) was killed by {name}"
        if name == "SIGKILL":
            message += "; somebody's `kill -9`, or the kernel was out of memory (see dmesg)"
    else:
        message = f"rank {event.rank} ({place}) ended with exit code {event.exit_code}, unannounced"
    return Failure(Reason.RANK_DIED, message, event.rank, log_tail=event.log_tail)


def point_at_silent_ranks(culprit: Failure, job: Job) -> Failure:
    """The culprit; where ranks know only of lost peers, with those that live and say nothing."""
    if culprit.reason != Reason.PEER_LOST:
        return culprit
    heard = {failure.rank for failure in job.failures}
    silent = [
        f"rank {rank} ({place_of(status)}) said nothing and may hang"
        for rank, status in job.ranks.items()
        if rank not in heard and not (status.finished or status.exited)
    ]
    return replace(culprit, message="\n".join([culprit.message, *silent]))


def place_of(status: RankStatus) -> str:
    pid = "before it told its pid," if status.pid is None else f"pid {status.pid}"
    return f"{pid} on {status.placement.slot.worker}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
