"""The states of a job, and the moves between them.

PENDING ──▶ STARTING ──▶ RUNNING ──▶ SUCCEEDED
   │            │           │
   │            └─────┬─────┘
   │                  ▼
   │              STOPPING ──▶ FAILED | CANCELLED
   └────────────────────────▶ FAILED | CANCELLED
"""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"  # waits for enough free workers
    STARTING = "starting"  # rank processes were asked for
    RUNNING = "running"  # every rank has met its peers and trains
    STOPPING = "stopping"  # it will end badly or was cancelled; its ranks are being stopped
    SUCCEEDED = "succeeded"  # every rank finished its work
    FAILED = "failed"  # see the reason
    CANCELLED = "cancelled"  # somebody asked for it

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.PENDING: frozenset({JobState.STARTING, JobState.FAILED, JobState.CANCELLED}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING}),
    JobState.RUNNING: frozenset({JobState.STOPPING, JobState.SUCCEEDED}),
    JobState.STOPPING: frozenset({JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class Reason(StrEnum):
    """Why a job ended badly, beyond what a rank itself reports (`events.FAILURE_REASONS`)."""

    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    RANK_DIED = "RankDied"  # the process ended without a word, e.g. killed
    WORKER_LOST = "WorkerLost"  # its Dask worker left the cluster
    CANCELLED = "Cancelled"


class InvalidTransition(Exception):
    """A move that the table forbids: a bug in the machine, told with its story."""

    def __init__(self, job_id: str, old: JobState, new: JobState, history: list[str]):
        super().__init__(f"job {job_id}: {old} -> {new} is not a move; so far: {history}")
