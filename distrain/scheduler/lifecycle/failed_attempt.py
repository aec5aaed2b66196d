"""Judges an attempt that ended early: which failure is the cause, and whether the job restarts."""

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distrain.backoff import doubled_s
from distrain.jobs.events import RankExited, RankFailed
from distrain.jobs.reasons import Reason, says_peer_lost
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.job import AttemptFailure, Job, RankStatus


def find_culprit(failures: Sequence[AttemptFailure]) -> AttemptFailure:
    """Return the failure that caused the others, given at least one, in the order of arrival.

    This is a cancellation, or else the first failure that is not about a lost peer, or else the
    first failure. If it is about a loss that is not finite, the failure with that reason at the
    earliest step is returned.

    >>> lost = AttemptFailure("PeerLost", "connection reset", rank=0)
    >>> dead = AttemptFailure("RankDied", "killed by SIGKILL", rank=1)
    >>> find_culprit([lost, dead]).rank
    1
    """
    cancelled = [failure for failure in failures if failure.reason == Reason.CANCELLED]
    causes = [failure for failure in failures if failure.reason != Reason.PEER_LOST]
    first = [*cancelled, *causes, *failures][0]
    if first.reason != Reason.NON_FINITE_LOSS:
        return first
    # All ranks fail at the same step; reports of later steps may arrive first.
    same = [failure for failure in causes if failure.reason == first.reason]
    return min(same, key=lambda failure: math.inf if failure.step is None else failure.step)


def reported_failure(event: RankFailed) -> AttemptFailure:
    return AttemptFailure(event.reason, event.message, event.rank, event.step, event.traceback)


def death_without_report(event: RankExited, status: RankStatus) -> AttemptFailure:
    """Return the failure of a rank whose process ended without reporting why.

    The reason is `PEER_LOST` if NCCL's watchdog aborted the process, otherwise `RANK_DIED`. `event`
    is the supervisor's report of the exit.
    """
    place = place_of(status)
    if event.exit_code < 0:
        name = _signal_name(-event.exit_code)
        if name == "SIGABRT" and says_peer_lost(event.log_tail):
            message = f"rank {event.rank} ({place}) was ended by NCCL's watchdog: a collective "
            message += "operation timed out, because another rank did not take part in it"
            return AttemptFailure(Reason.PEER_LOST, message, event.rank, log_tail=event.log_tail)
        message = f"rank {event.rank} ({place}) was killed by {name}"
        if name == "SIGKILL":
            message += ": by `kill -9`, or by the kernel's out-of-memory killer (see dmesg)"
    else:
        message = f"rank {event.rank} ({place}) ended with exit code {event.exit_code}, no report"
    return AttemptFailure(Reason.RANK_DIED, message, event.rank, log_tail=event.log_tail)


def name_ranks_without_report(culprit: AttemptFailure, job: Job) -> AttemptFailure:
    """Return the failure `culprit`; if it is a lost peer, name the silent ranks in its message.

    These are the ranks of the current attempt that run, and have not reported a failure.
    """
    if culprit.reason != Reason.PEER_LOST:
        return culprit
    heard = {failure.rank for failure in job.failures}
    silent = [
        f"rank {rank} ({place_of(status)}) sent no report and may hang"
        for rank, status in job.ranks.items()
        if rank not in heard and not (status.finished or status.exited)
    ]
    return replace(culprit, message="\n".join([culprit.message, *silent]))


def place_of(status: RankStatus) -> str:
    """Return the rank's process id and its worker's address, as a text."""
    pid = "no pid reported yet," if status.pid is None else f"pid {status.pid}"
    return f"{pid} on {status.placement.slot.worker}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


HOPELESS = frozenset(
    {
        Reason.DATA_ERROR,  # a restart does not repair the data
        Reason.INVALID_SPEC,
        Reason.NON_FINITE_LOSS,  # the same steps would fail again
        Reason.OUT_OF_MEMORY,
        Reason.OUTPUT_ERROR,
        Reason.QUEUE_DEADLINE_EXCEEDED,
        Reason.START_DEADLINE_EXCEEDED,
        Reason.DEADLINE_EXCEEDED,
        Reason.COORDINATOR_LOST,
    }
)
"""Reasons after which the scheduler does not restart the job.

Another attempt would fail too, a deadline has passed, or the coordinator itself is lost. A user can
resume some of these jobs, such as those with a lost coordinator.
"""

NOT_OF_THE_HOST = frozenset(
    {
        Reason.DATA_ERROR,
        Reason.INVALID_SPEC,
        Reason.NON_FINITE_LOSS,
        Reason.OUT_OF_MEMORY,
        Reason.PEER_LOST,  # the rank that reports it is not the one that was lost
    }
)
"""Reasons for which the host of the rank that failed is not avoided afterwards."""

LONGEST_BACKOFF_S = 60.0

LOSSES_S = 600.0
"""Each loss of a worker within this time doubles the pause, regardless of progress in between."""


@dataclass(frozen=True)
class AttemptVerdict:
    """The consequence of an attempt that ended early: a restart after a pause, or the job's end."""

    state: JobState  # `RESTARTING`, `PENDING`, or a bad end
    # the restart counts towards the spec's `restart.max_BUDGET`; "": it counts towards no limit
    budget: str = ""
    backoff_s: float = 0.0  # how long to wait before the restart
    message: str = ""  # the cause's message, and whether a budget is used up
    why_so_long: str = ""  # why `backoff_s` is longer than `restart.backoff_s`; "" if it is not


def judge(job: Job, cause: AttemptFailure, now_s: float, *, queue_again: bool) -> AttemptVerdict:
    """Return whether a job restarts, and after what pause, if `cause` has ended its attempt.

    With `queue_again`, a job that restarts gives up its workers to a job of higher priority, and
    waits in the queue again.
    """
    again = JobState.PENDING if queue_again else JobState.RESTARTING
    if cause.reason == Reason.CANCELLED:
        return AttemptVerdict(JobState.CANCELLED, message=cause.message)
    if cause.reason in HOPELESS:
        return AttemptVerdict(JobState.FAILED, message=cause.message)
    if cause.reason == Reason.RESIZED:
        return AttemptVerdict(again, message=cause.message)
    budget, most = _budget(job, cause)
    if most is not None and job.spent[budget] >= most:
        left = f"\nno restart is left (limit of {budget.replace('_', ' ')}: {most})" if most else ""
        return AttemptVerdict(JobState.FAILED, message=cause.message + left)
    if budget == "preemptions":
        return AttemptVerdict(again, budget, message=cause.message)
    doublings, why = max(_in_a_row(job), _losses(job, cause, now_s))
    backoff_s = doubled_s(job.spec.restart.backoff_s, doublings, LONGEST_BACKOFF_S)
    return AttemptVerdict(again, budget, backoff_s, cause.message, why if doublings else "")


def _budget(job: Job, cause: AttemptFailure) -> tuple[str, int | None]:
    limits = job.spec.restart
    if cause.reason == Reason.PREEMPTED:
        return "preemptions", limits.max_preemptions
    if cause.reason == Reason.WORKER_LOST:
        return "worker_losses", limits.max_worker_losses
    return "rank_failures", limits.max_rank_failures


def _in_a_row(job: Job) -> tuple[int, str]:
    """Return how many attempts in a row failed without progress before this one, and a text.

    The text explains a long pause to users; its number includes this attempt. The result is 0 if
    this attempt reached a later step than all attempts that failed before.
    """
    before = 0 if job.step > job.furthest_failed_step else job.failures_in_a_row
    return before, f"{before + 1} failures in a row without progress beyond step {job.step}"


def _losses(job: Job, cause: AttemptFailure, now_s: float) -> tuple[int, str]:
    """Return how many restarts in the last `LOSSES_S` followed the loss of a worker, and a text.

    The text explains a long pause to users; its number includes this loss. Several workers that
    were lost in one attempt count once. The result is 0 if `cause` is not the loss of a worker.
    """
    since_s = now_s - job.submitted_s - LOSSES_S
    lost = [one for one in job.restarts if one.reason == Reason.WORKER_LOST]
    before = sum(one.after_s > since_s for one in lost) if cause.reason == Reason.WORKER_LOST else 0
    return before, f"{before + 1} losses of workers in {LOSSES_S / 60:.0f} minutes"
