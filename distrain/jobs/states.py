"""The states of a job and the moves between them.

PENDING ──▶ STARTING | FAILED | CANCELLED
STARTING ──▶ RUNNING | STOPPING
RUNNING ──▶ STOPPING | SUCCEEDED
STOPPING ──▶ RESTARTING | PENDING | SUCCEEDED | FAILED | CANCELLED
RESTARTING ──▶ STARTING | PENDING | FAILED | CANCELLED
"""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job at a scheduler."""

    PENDING = "pending"  # in the queue, without workers
    STARTING = "starting"  # its rank processes are being started
    RUNNING = "running"  # every rank is connected to its peers and trains
    STOPPING = "stopping"  # its ranks are being stopped, for any reason
    RESTARTING = "restarting"  # its ranks have ended; its workers are reserved for the next attempt
    SUCCEEDED = "succeeded"  # every rank finished its work
    FAILED = "failed"  # see the reason
    CANCELLED = "cancelled"  # stopped on request

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)

    @property
    def holds_workers(self) -> bool:
        """Whether the job's ranks are on workers; workers reserved for a restart do not count."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)

    @property
    def waits(self) -> bool:
        """Whether the job waits for its first or next attempt."""
        return self in (JobState.PENDING, JobState.RESTARTING)


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


FINAL_STATES = frozenset(str(state) for state in JobState if state.is_final)


class InvalidTransition(Exception):
    """A transition that `TRANSITIONS` forbids: a bug."""

    def __init__(self, job_id: str, old: JobState, new: JobState):
        super().__init__(f"job {job_id}: {old} -> {new} is not a move")
