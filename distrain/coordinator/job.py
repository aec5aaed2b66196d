"""What the job machine knows of a job, and how it names the culprit of a failure."""

import math
import signal
from dataclasses import dataclass, field, replace

from distrain.coordinator.states import JobState, Reason
from distrain.events import RankExited, RankFailed
from distrain.placement import Placement


@dataclass(frozen=True)
class Failure:
    """One account of what went wrong."""

    reason: str
    message: str
    rank: int | None = None
    step: int | None = None
    traceback: str | None = None
    log_tail: str = ""


@dataclass
class RankStatus:
    """What is known of one rank of the current attempt."""

    placement: Placement
    pid: int | None = None
    ready: bool = False
    finished: bool = False
    exited: bool = False


@dataclass
class Job:
    """One job and all that the machine knows of it."""

    job_id: str
    num_ranks: int
    submitted_s: float
    start_deadline_s: float
    total_deadline_s: float | None
    state: JobState = JobState.PENDING
    attempt: int = 0
    why_pending: str = ""
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    culprit: Failure | None = None
    settle_at_s: float | None = None
    linger_until_s: float | None = None
    give_up_at_s: float | None = None
    history: list[str] = field(default_factory=list)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the current attempt's ranks are."""
        return tuple(status.placement for status in self.ranks.values())

    @property
    def is_finished(self) -> bool:
        """Whether every rank did all its work."""
        return bool(self.ranks) and all(status.finished for status in self.ranks.values())


def find_culprit(failures: list[Failure]) -> Failure:
    """The failure that brought the others about (see the module's theory of operation).

    >>> lost = Failure("PeerLost", "connection reset", rank=0)
    >>> dead = Failure("RankDied", "killed by SIGKILL", rank=1)
    >>> find_culprit([lost, dead]).rank
    1
    """
    cancelled = [failure for failure in failures if failure.reason == Reason.CANCELLED]
    causes = [failure for failure in failures if failure.reason != "PeerLost"]
    first = (cancelled + causes + failures)[0]
    if first.reason != "NonFiniteLoss":
        return first
    # All ranks run into the same broken step; reports of later steps may come first.
    same = [failure for failure in causes if failure.reason == first.reason]
    return min(same, key=lambda failure: math.inf if failure.step is None else failure.step)


def told_failure(event: RankFailed) -> Failure:
    """A rank's own account."""
    return Failure(event.reason, event.message, event.rank, event.step, event.traceback)


def silent_death(event: RankExited, status: RankStatus) -> Failure:
    """The supervisor's account of a process that ended without one."""
    place = _place(status)
    if event.exit_code < 0:
        name = _signal_name(-event.exit_code)
        message = f"rank {event.rank} ({place}) was killed by {name}"
        if name == "SIGKILL":
            message += "; somebody's `kill -9`, or the kernel was out of memory (see dmesg)"
    else:
        message = f"rank {event.rank} ({place}) ended with exit code {event.exit_code}, unannounced"
    return Failure(Reason.RANK_DIED, message, event.rank, log_tail=event.log_tail)


def point_at_silent_ranks(culprit: Failure, job: Job) -> Failure:
    """Where ranks know only of lost peers, name those that live and say nothing: they may hang."""
    if culprit.reason != "PeerLost":
        return culprit
    heard = {failure.rank for failure in job.failures}
    silent = [
        f"rank {rank} ({_place(status)}) said nothing and may hang"
        for rank, status in job.ranks.items()
        if rank not in heard and not (status.finished or status.exited)
    ]
    return replace(culprit, message="\n".join([culprit.message, *silent]))


def _place(status: RankStatus) -> str:
    pid = "before it told its pid," if status.pid is None else f"pid {status.pid}"
    return f"{pid} on {status.placement.slot.worker}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
