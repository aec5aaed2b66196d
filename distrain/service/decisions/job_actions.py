"""Decides the actions for one job, from its users' intent and its state at the scheduler.

A job is handed to a scheduler by one command (PUT), which may arrive late, or whose answer may be
lost. So the row first records that the command may have been sent (`handing_over`), for which
submission (`first_attempt`) and to which run of the scheduler's process (`epoch`). Every order
includes its submission, and a scheduler accepts each submission once (`docs/decisions/0031...`
describes the failures that this prevents). A pass then decides by the user's intent and the
scheduler's answer:

| intent | the scheduler | action |
|---|---|---|
| run | has the submission | its state is written |
| run | does not have it, same epoch | PUT again: it recognises a repeated submission |
| run | does not have it, another epoch | a new submission after the last attempt, PUT |
| run | the same, more than `MAX_SCHEDULER_LOSSES` times | failed: CoordinatorLost |
| run or cancel | has ended it | final |
| run or cancel | has an earlier submission of it, not ended | cancel the earlier submission |
| cancel | has it | cancel, until it has ended |
| cancel | does not have it, another epoch | final: cancelled; a late PUT has the earlier epoch |
| cancel | does not have it, same epoch | cancel: the scheduler then rejects a late PUT |
| any | does not answer | nothing: a job never ends because of a timeout |

A lost submission counts towards `MAX_SCHEDULER_LOSSES` unless it was still pending there.

A submission that waits here (`queued`) is handed over by `admit`, or cancelled immediately. If it
misses a deadline, it fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distrain.jobs.api_answers import Job as SeenJob
from distrain.jobs.deadlines import missed_since_submission
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.resources import DeadlinesSpec
from distrain.jobs.states import JobState
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.world import JobOrder
from distrain.service.values import Intent, Job, Phase

MAX_SCHEDULER_LOSSES = 5  # how many times schedulers may lose one submission of a job


@dataclass(frozen=True)
class HandOver:
    """Hand over a new submission of the job to the scheduler's process with this epoch."""

    epoch: str
    losses: int = 0  # how many times schedulers have lost this submission


@dataclass(frozen=True)
class PutAgain:
    """Repeat the PUT request that submits the job, as the scheduler may not have received it."""


@dataclass(frozen=True)
class Write:
    """Write values to the job's row; if they end the job, only after its summary is written."""

    columns: Mapping[str, Any]


CANCEL = "cancel"


def cancel(why: str, first_attempt: int, grace_s: float | None = None) -> JobOrder:
    """Return an order that cancels the submission with this `first_attempt`.

    `why` is the reason for users; `grace_s` is the time in which its ranks save a checkpoint.
    """
    return JobOrder(CANCEL, {"why": why, "grace_s": grace_s, "first_attempt": first_attempt})


Action = HandOver | PutAgain | Write | JobOrder


def reconcile(
    job: Job,
    seen: SeenJob | None,
    cluster: ClusterNow,
    now_s: float,
    deadlines: DeadlinesSpec | None = None,
) -> tuple[Action, ...]:
    """Return the actions for a job that has not ended.

    `seen` is the job as the scheduler's current process (`cluster.epoch`) reported it. It is `None`
    if the scheduler's complete answer, queried after the row's last command, did not have the job.
    A job that schedulers have lost more than `MAX_SCHEDULER_LOSSES` times fails. So does a queued
    job that has missed one of its `deadlines`; the scheduler checks those of other jobs.
    """
    if job.phase is Phase.FINAL:
        return ()
    if job.phase is Phase.QUEUED:
        if job.intent is Intent.CANCEL:
            return (Write(cancelled(job, now_s)),)
        return _late(job, deadlines, now_s) if deadlines else ()
    if cluster.epoch is None:
        return ()
    if seen is not None and seen.first_attempt < job.first_attempt:
        if not seen.is_final:
            return (cancel("a later submission replaces it", seen.first_attempt),)
        seen = None
    if seen is None:
        return _missing(job, cluster, now_s)
    return _seen(job, seen, cluster, now_s)


def first_attempt(job: Job, attempts_in_run_dir: int) -> int:
    """Return the first attempt number of a job's next submission, larger than all earlier ones.

    `attempts_in_run_dir` is the highest attempt number in the run folder, 0 if there is none.
    """
    before = job.first_attempt if job.phase is not Phase.QUEUED else job.first_attempt - 1
    return max(attempts_in_run_dir, job.attempt, before) + 1


def handed_over(
    job: Job, epoch: str, losses: int, attempts_in_run_dir: int, now_s: float
) -> dict[str, Any]:
    """Return the columns of a job's row to write before a new submission is sent to the scheduler.

    `epoch` is that of the scheduler; `losses` is how many times schedulers have lost the
    submission. `attempts_in_run_dir` is as in `first_attempt`.
    """
    return {
        "phase": Phase.HANDING_OVER,
        "epoch": epoch,
        "first_attempt": first_attempt(job, attempts_in_run_dir),
        "scheduler_losses": losses,
        "why_pending": f"it is being handed over to cluster {job.cluster}",
        "observed_at_s": now_s,
    }


def refused(job: Job, reason: str, message: str, now_s: float) -> dict[str, Any]:
    """Return the last update of a job's database row, by column, for a job that cannot run.

    `reason` and `message` are shown to its owner.
    """
    return _end(job, JobState.FAILED, reason, message, now_s)


def ended(job: Job, seen: SeenJob, now_s: float) -> dict[str, Any]:
    """Return the last update of a job's database row, by column.

    `seen` is the job's end, as its scheduler reported it.
    """
    columns = _observed(job, seen, job.epoch, now_s)
    # A submission that ended before its first attempt has still used its number: the scheduler
    # rejects the same submission again.
    never_began = seen.attempt < seen.first_attempt
    return columns | {
        "phase": Phase.FINAL,
        "finished_at_s": now_s,
        "why_pending": "",
        "first_attempt": seen.first_attempt + 1 if never_began else seen.first_attempt,
    }


def answered_cancel(job: Job, tombstone: SeenJob, now_s: float) -> dict[str, Any] | None:
    """Return the last update of a cancelled job's row, by column.

    `tombstone` is the scheduler's report of the end of the cancelled submission. If the scheduler
    never had the submission, the job counts as cancelled, since a late PUT is rejected. `None` if
    the report is about an earlier submission.
    """
    if tombstone.first_attempt < job.first_attempt:
        return None
    if tombstone.state == JobState.CANCELLED and job.attempt < job.first_attempt:
        return cancelled(job, now_s)
    return ended(job, tombstone, now_s)


def _seen(job: Job, seen: SeenJob, cluster: ClusterNow, now_s: float) -> tuple[Action, ...]:
    if seen.is_final:
        return (Write(ended(job, seen, now_s)),)
    actions: list[Action] = []
    observed = _observed(job, seen, cluster.epoch, now_s)
    changed = {name for name, value in observed.items() if getattr(job, name) != value}
    changed.discard("observed_at_s")
    if changed:
        # Unchanged columns are omitted, so that a change of metrics only is recognised as one.
        actions.append(Write({name: observed[name] for name in (*changed, "observed_at_s")}))
    if job.intent is Intent.CANCEL:
        actions.append(_cancel_of(job))
    elif seen.state == JobState.PENDING and seen.priority != job.priority:
        words = {"priority": job.priority, "first_attempt": job.first_attempt}
        actions.append(JobOrder("priority", words))
    return tuple(actions)


def _late(job: Job, deadlines: DeadlinesSpec, now_s: float) -> tuple[Action, ...]:
    missed = missed_since_submission(deadlines, job.age_s(now_s), is_queued=True)
    if missed is None:
        return ()
    reason, message = missed
    why = f": {job.why_pending}" if job.why_pending else ""
    return (Write(refused(job, reason, message + why, now_s)),)


def _cancel_of(job: Job) -> JobOrder:
    why = job.cancel_why.removeprefix("cancelled ")  # the scheduler's message begins with it
    return cancel(why, job.first_attempt, job.cancel_grace_s)


def _missing(job: Job, cluster: ClusterNow, now_s: float) -> tuple[Action, ...]:
    assert cluster.epoch is not None
    same_epoch = job.epoch == cluster.epoch
    if job.intent is Intent.CANCEL:
        if not same_epoch:
            return (Write(cancelled(job, now_s)),)
        return (_cancel_of(job),)
    if same_epoch:
        return (PutAgain(),)
    # A job that only waited there has lost nothing. A job whose PUT is uncertain counts: it may be
    # the one that crashes its scheduler.
    waited = job.phase is Phase.HANDED_OVER and job.state == JobState.PENDING
    losses = job.scheduler_losses + (not waited)
    if losses > MAX_SCHEDULER_LOSSES:
        message = f"its scheduler was lost {losses} times while it had the job"
        return (Write(refused(job, Reason.COORDINATOR_LOST, message, now_s)),)
    return (HandOver(cluster.epoch, losses),)


def _observed(job: Job, seen: SeenJob, epoch: str | None, now_s: float) -> dict[str, Any]:
    runs = seen.state in ("starting", "running")
    return {
        "phase": Phase.HANDED_OVER,
        "epoch": epoch,
        "first_attempt": seen.first_attempt,
        "state": seen.state,
        "attempt": max(seen.attempt, job.attempt),
        "reason": seen.reason,
        "message": seen.message,
        "why_pending": seen.why_pending,
        "progress": _progress(job, seen),
        "started_at_s": job.started_at_s or (now_s if runs else None),
        "observed_at_s": now_s,
    }


def _progress(job: Job, seen: SeenJob) -> dict[str, Any]:
    restart = {"last_restart": seen.last_restart} if seen.last_restart else {}
    if not seen.figures:
        return {**job.progress, **restart}
    ranks = {"ranks": seen.num_ranks} if seen.gpus is not None else {}
    return {**places_of(job.progress), **seen.figures, **ranks, **restart}


def places_of(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return only `ranks` and `gpus` of a job's metrics, for the time between two attempts.

    They stay valid until the next attempt reports.
    """
    return {name: value for name, value in progress.items() if name in ("ranks", "gpus")}


def cancelled(job: Job, now_s: float) -> dict[str, Any]:
    message = job.cancel_why or "its end was requested"
    return _end(job, JobState.CANCELLED, Reason.CANCELLED, message, now_s)


def _end(job: Job, state: JobState, reason: str, message: str, now_s: float) -> dict[str, Any]:
    return {
        "phase": Phase.FINAL,
        "state": str(state),
        "reason": str(reason),
        "message": message,
        "why_pending": "",
        "first_attempt": job.unused_attempt,
        "finished_at_s": now_s,
        "observed_at_s": now_s,
    }
