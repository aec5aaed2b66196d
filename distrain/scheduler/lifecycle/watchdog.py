"""Detects missed deadlines and gangs without progress, and finds the rank that blocks a gang.

Ranks send heartbeats at least once a second. Since ranks take each step together, a rank that hangs
blocks all others. If no rank has made progress for `deadlines.progress_s`, the watchdog has the
supervisors inspect their ranks' processes, and then names the rank that blocks the others.
"""

from distrain.jobs.deadlines import missed_since_submission
from distrain.jobs.events import Heartbeat
from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.failed_attempt import place_of
from distrain.scheduler.lifecycle.job import AttemptFailure, Job, RankStatus
from distrain.scheduler.lifecycle.messages import TakeStacks

STACKS_S = 1.0  # how long to wait for the supervisors' reports of a gang that hangs
HEARD_WITHIN_S = 3.0  # a rank whose last heartbeat is older counts as silent


def apply_heartbeat(status: RankStatus, event: Heartbeat, now_s: float) -> None:
    """Update a rank's status with its heartbeat."""
    status.heard_s = now_s
    # Waiting for storage counts as progress: the rank itself ends that wait after `data.retry_s`.
    if event.progress != status.progress or event.waiting_for == "storage":
        status.progressed_s = now_s
    status.progress = event.progress
    status.doing, status.waiting_for = event.doing, event.waiting_for


def watch(job: Job, now_s: float) -> TakeStacks | AttemptFailure | None:
    """Detect a hang of a running job; called at each tick, with the lifecycle's time.

    Returns `TakeStacks` when no rank has made progress for `deadlines.progress_s`. When the stacks
    have been reported, or `STACKS_S` later, returns the failure of the rank that blocks the others.
    Returns `None` in all other calls, or if a rank has made progress meanwhile.
    """
    limit_s = job.spec.deadlines.progress_s
    training = [s for s in job.ranks.values() if not (s.finished or s.exited)]
    if limit_s is None or not training:
        return None
    if job.stacks_due_s is None:
        if any(now_s - status.progressed_s < limit_s for status in training):
            return None
        job.stacks_due_s = now_s + STACKS_S
        job.stacks = {}
        return TakeStacks(job.job_id, job.attempt, job.placements)
    if any(status.progressed_s >= job.stacks_due_s - STACKS_S for status in training):
        job.stacks_due_s = None  # a rank has made progress meanwhile: it was slow, not stuck
    elif now_s >= job.stacks_due_s or len(job.stacks) == len(job.ranks):
        job.stacks_due_s = None
        return find_stalled_rank(job, limit_s, now_s)
    return None


def find_stalled_rank(job: Job, progress_s: float, now_s: float) -> AttemptFailure:
    """Return the failure of the rank that blocks a gang, judged by the ranks' last heartbeats.

    A rank without recent heartbeats is blamed first (its process or machine is stopped), then a
    rank that waits for its reader, then a rank that does not wait for other ranks, then the rank
    with the least progress, for which the others wait. If all ranks wait for each other with equal
    progress, the failure has no rank. At least one rank must not have finished.

    Args:
        job: The job; `job.stacks` has the stacks that were reported.
        progress_s: The time without progress, for the message.
        now_s: The lifecycle's time.
    """
    alive = {r: s for r, s in job.ranks.items() if not (s.finished or s.exited)}
    rank = min(alive, key=lambda r: (_suspicion(alive[r], now_s), alive[r].progress, r))
    status = alive[rank]
    others = {r: s for r, s in alive.items() if r != rank}
    waiting = sorted(r for r, s in others.items() if s.waiting_for == "peers")
    tied = _suspicion(status, now_s) == 3 and all(
        other.progress == status.progress for other in others.values()
    )
    who = f"rank {rank} ({place_of(status)}) {_what_it_does(job, rank, status, now_s)}"
    lines = [f"no progress for {progress_s:g} s: {who}"]
    if tied and others:
        lines = [
            f"no progress for {progress_s:g} s: all ranks wait for each other in one exchange; "
            "is the network between them cut?"
        ]
    elif waiting:
        lines.append(f"rank {', '.join(map(str, waiting))} waited for it")
    stacks = job.stacks.get(rank)
    reason = Reason.COLLECTIVE_TIMEOUT if waiting or (tied and others) else Reason.NO_PROGRESS
    return AttemptFailure(
        reason,
        "\n".join(lines),
        None if tied and others else rank,
        traceback=stacks.stacks if stacks and stacks.stacks else None,
    )


def _suspicion(status: RankStatus, now_s: float) -> int:
    if status.heard_s is None or now_s - status.heard_s > HEARD_WITHIN_S:
        return 0
    return {"reader": 1, "peers": 3}.get(status.waiting_for, 2)


def _what_it_does(job: Job, rank: int, status: RankStatus, now_s: float) -> str:
    taken = job.stacks.get(rank)
    state = f"its process is {taken.process_state}" if taken else "its supervisor does not answer"
    match _suspicion(status, now_s):
        case 0:
            sent = "has sent no report yet"
            if status.heard_s is not None:
                sent = f"sent its last report {now_s - status.heard_s:.0f} s ago"
            return f"{sent}; {state}"
        case 1:
            return (
                f"waits for its reader, in {status.doing}; is a disk or file server stuck?; {state}"
            )
        case 2:
            return f"hangs in {status.doing}; {state}"
        case _:
            return f"is behind the others; it waits in {status.doing}; {state}"


def missed_deadline(job: Job, now_s: float) -> AttemptFailure | None:
    """Return the failure of a job that has missed a deadline; `None` if it has missed none.

    The total and the queue deadline begin with the submission. The queue deadline applies until the
    first placement: a preempted job may wait without limit. The start deadline restarts with each
    placement. It also limits a restart's wait for workers, because workers reserved for it are
    unavailable to other jobs.
    """
    deadlines, request = job.spec.deadlines, job.request
    age_s = request.age_s + now_s - job.submitted_s
    is_queued = job.state is JobState.PENDING and not (job.restarts or request.has_run)
    if missed := missed_since_submission(deadlines, age_s, is_queued=is_queued):
        reason, message = missed
        why = f": {job.why_pending}" if reason is Reason.QUEUE_DEADLINE_EXCEEDED else ""
        return AttemptFailure(reason, message + why)
    since_s = job.starting_since_s
    if since_s is not None and now_s - since_s > deadlines.start_s:
        return AttemptFailure(Reason.START_DEADLINE_EXCEEDED, _late_start(job))
    return None


def _late_start(job: Job) -> str:
    within = f"within {job.spec.deadlines.start_s:g} s"
    if job.state is JobState.RESTARTING:
        return (
            f"the job was not assigned to workers again {within} (deadlines.start_s): "
            f"{job.why_pending}"
        )
    missing = [str(rank) for rank, status in job.ranks.items() if not status.ready]
    return (
        f"attempt {job.attempt} did not start {within} of its assignment (deadlines.start_s): "
        f"rank {', '.join(missing)} did not become ready"
    )
