"""What follows an attempt that ended early: another one, the queue, or the end of the job."""

from dataclasses import dataclass

from distrain.jobs import JobState, Reason
from distrain.lifecycle.job import Failure, Job

HOPELESS = frozenset(
    {
        Reason.DATA_ERROR,  # the data will not mend itself
        Reason.INVALID_SPEC,
        Reason.NON_FINITE_LOSS,  # the same steps would lead there again
        Reason.OUT_OF_MEMORY,
        Reason.OUTPUT_ERROR,
        Reason.QUEUE_DEADLINE_EXCEEDED,
        Reason.START_DEADLINE_EXCEEDED,
        Reason.DEADLINE_EXCEEDED,
        Reason.COORDINATOR_LOST,
    }
)
"""Reasons that another attempt would meet again."""

LONGEST_BACKOFF_S = 60.0

LOSSES_S = 600.0
"""Each loss of a worker in so many seconds doubles the pause, however far the job came between."""


@dataclass(frozen=True)
class Verdict:
    """What follows an attempt that ended early."""

    state: JobState  # `RESTARTING`, `PENDING`, or a bad end
    budget: str = ""  # which budget pays for another attempt; "" if it costs nothing
    backoff_s: float = 0.0  # how long to wait before it
    message: str = ""  # the reason's message, with what the budgets have to do with it
    why_so_long: str = ""  # what has made that longer than `restart.backoff_s`, if something has


def judge(job: Job, cause: Failure, now_s: float, *, queue_again: bool) -> Verdict:
    """The verdict on the attempt that `cause` ended; `queue_again`: others want its workers."""
    again = JobState.PENDING if queue_again else JobState.RESTARTING
    if cause.reason == Reason.CANCELLED:
        return Verdict(JobState.CANCELLED, message=cause.message)
    if cause.reason in HOPELESS:
        return Verdict(JobState.FAILED, message=cause.message)
    if cause.reason == Reason.RESIZED:
        return Verdict(again, message=cause.message)
    budget, most = _budget(job, cause)
    if most is not None and job.spent[budget] >= most:
        left = f"\nno restart is left: {budget.replace('_', ' ')} may be {most}" if most else ""
        return Verdict(JobState.FAILED, message=cause.message + left)
    if budget == "preemptions":
        return Verdict(again, budget, message=cause.message)
    doublings, why = max(_in_a_row(job), _losses(job, cause, now_s))
    backoff_s = float(min(job.request.backoff_s * 2.0 ** min(doublings, 30), LONGEST_BACKOFF_S))
    return Verdict(again, budget, backoff_s, cause.message, why if doublings else "")


def _budget(job: Job, cause: Failure) -> tuple[str, int | None]:
    budgets = job.request.budgets
    if cause.reason == Reason.PREEMPTED:
        return "preemptions", budgets.preemptions
    if cause.reason == Reason.WORKER_LOST:
        return "worker_losses", budgets.worker_losses
    return "rank_failures", budgets.rank_failures


def _in_a_row(job: Job) -> tuple[int, str]:
    """The number of failures before this one that got as far, and a sentence about them."""
    before = 0 if job.step > job.furthest_failed_step else job.failures_in_a_row
    return before, f"{before + 1} failures in a row got no further than step {job.step}"


def _losses(job: Job, cause: Failure, now_s: float) -> tuple[int, str]:
    """The number of workers lost shortly before this one, and a sentence about them."""
    since_s = now_s - job.submitted_s - LOSSES_S
    lost = [one for one in job.restarts if one.reason == Reason.WORKER_LOST]
    before = sum(one.after_s > since_s for one in lost) if cause.reason == Reason.WORKER_LOST else 0
    return before, f"{before + 1} losses of workers in {LOSSES_S / 60:.0f} minutes"
