"""The states of a job, the moves between them, and the reasons of a bad end.

PENDING ──▶ STARTING | FAILED | CANCELLED
STARTING ──▶ RUNNING | STOPPING
RUNNING ──▶ STOPPING | SUCCEEDED
STOPPING ──▶ RESTARTING | PENDING | SUCCEEDED | FAILED | CANCELLED
RESTARTING ──▶ STARTING | PENDING | FAILED | CANCELLED
"""

from collections.abc import Iterable
from enum import StrEnum


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"  # in the queue, without workers
    STARTING = "starting"  # rank processes were asked for
    RUNNING = "running"  # every rank has met its peers and trains
    STOPPING = "stopping"  # its ranks are being stopped, whatever comes after
    RESTARTING = "restarting"  # its ranks are gone, its workers stay reserved for the next attempt
    SUCCEEDED = "succeeded"  # every rank finished its work
    FAILED = "failed"  # see the reason
    CANCELLED = "cancelled"  # somebody asked for it

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)

    @property
    def holds_workers(self) -> bool:
        """Whether ranks of it may run."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


_BAD_ENDS = {JobState.FAILED, JobState.CANCELLED}

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.PENDING: frozenset({JobState.STARTING, *_BAD_ENDS}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING}),
    JobState.RUNNING: frozenset({JobState.STOPPING, JobState.SUCCEEDED}),
    JobState.STOPPING: frozenset(
        {JobState.RESTARTING, JobState.PENDING, JobState.SUCCEEDED, *_BAD_ENDS}
    ),
    JobState.RESTARTING: frozenset({JobState.STARTING, JobState.PENDING, *_BAD_ENDS}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class Reason(StrEnum):
    """Why an attempt ended early, beyond what a rank itself reports (`events.FAILURE_REASONS`)."""

    QUEUE_DEADLINE_EXCEEDED = "QueueDeadlineExceeded"  # it waited too long for its first placement
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    RANK_DIED = "RankDied"  # the process ended without a word, e.g. killed
    WORKER_LOST = "WorkerLost"  # its Dask worker left the cluster
    COLLECTIVE_TIMEOUT = "CollectiveTimeout"  # ranks waited in vain for one that did not arrive
    NO_PROGRESS = "NoProgress"  # nothing moved, and nobody waited for anybody else
    PREEMPTED = "Preempted"  # a notice to leave, or a job of higher priority
    RESIZED = "Resized"  # stopped to go on with more ranks
    COORDINATOR_LOST = "CoordinatorLost"  # the scheduler went away; who watched the job tells it
    CANCELLED = "Cancelled"


class InvalidTransition(Exception):
    """A move that the table forbids: a bug in the machine, told with its story."""

    def __init__(self, job_id: str, old: JobState, new: JobState, history: Iterable[object]):
        so_far = [str(move) for move in history]
        super().__init__(f"job {job_id}: {old} -> {new} is not a move; so far: {so_far}")
