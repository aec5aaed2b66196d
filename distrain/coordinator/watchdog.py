"""Noticing that a gang makes no progress any more, and who holds it up.

Ranks send heartbeats at least once a second. In a gang that trains in step, one rank that hangs
keeps all from going on, so the watchdog waits until none has made progress for the job's limit. It
then has the supervisors look at their ranks' processes, and names the culprit.
"""

from distrain.coordinator.culprit import place_of
from distrain.coordinator.job import Failure, Job, RankStatus
from distrain.coordinator.messages import TakeStacks
from distrain.coordinator.states import Reason
from distrain.events import Heartbeat

STACKS_S = 1.0
"""How long the supervisors' accounts of a gang that hangs are waited for."""

HEARD_WITHIN_S = 3.0
"""A rank whose last heartbeat is older says nothing."""


def hear(status: RankStatus, event: Heartbeat, now_s: float) -> None:
    """Take in a heartbeat."""
    status.heard_s = now_s
    # A rank that waits for its storage says so only until it gives up by itself.
    if event.progress != status.progress or event.waiting_for == "storage":
        status.progressed_s = now_s
    status.progress = event.progress
    status.doing, status.waiting_for = event.doing, event.waiting_for


def watch(job: Job, now_s: float) -> TakeStacks | Failure | None:
    """What to do about a running job: nothing, ask what its ranks do, or end its attempt."""
    limit_s = job.request.progress_s
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
        job.stacks_due_s = None  # it was slow, not stuck
    elif now_s >= job.stacks_due_s or len(job.stacks) == len(job.ranks):
        job.stacks_due_s = None
        return nothing_moved(job, limit_s, now_s)
    return None


def nothing_moved(job: Job, progress_s: float, now_s: float) -> Failure:
    """Who holds up a gang that made no progress, from its ranks' last heartbeats.

    In this order it is a rank that says nothing (its process is stopped, or its machine is), one
    that waits for its reader, one that waits for nobody, and the one that came least far: it did
    not arrive where the others wait for it.

    Args:
        job: With at least one rank that has not finished.
        progress_s: How long nothing moved.
        now_s: The time.
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
            f"no progress for {progress_s:g} s: all ranks wait for each other at the same place; "
            "is the network between them cut?"
        ]
    elif waiting:
        lines.append(f"rank {', '.join(map(str, waiting))} waited for it")
    stacks = job.stacks.get(rank)
    reason = Reason.COLLECTIVE_TIMEOUT if waiting or (tied and others) else Reason.NO_PROGRESS
    return Failure(
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
    told = job.stacks.get(rank)
    state = f"; its process is {told.process_state}" if told else "; its supervisor says nothing"
    match _suspicion(status, now_s):
        case 0:
            since = "never" if status.heard_s is None else f"not for {now_s - status.heard_s:.0f} s"
            return f"has {since} been heard of{state}"
        case 1:
            return f"waits for its reader, in {status.doing}: a stuck disk or file server?{state}"
        case 2:
            return f"hangs in {status.doing}{state}"
        case _:
            return f"did not arrive where the others are; it waits in {status.doing}{state}"
