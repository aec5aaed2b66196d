"""What is left of jobs that the coordinator has forgotten: how they ended, and nothing to see."""

from collections import OrderedDict
from dataclasses import dataclass

from distrain.jobs import JobState, JobView
from distrain.lifecycle import Job

KEPT = 10_000
"""Tombstones at most; the oldest are dropped first."""

_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True)
class Tombstone:
    """A job that has ended and is forgotten.

    Attributes:
        attempt: Its last attempt; below `first_attempt` if none was started.
        first_attempt: The number that its first attempt had, or would have had.
        message: The beginning of what was said for people.
    """

    job_id: str
    name: str
    state: JobState
    attempt: int
    first_attempt: int
    num_ranks: int
    reason: str | None = None
    message: str | None = None

    @property
    def view(self) -> JobView:
        """As a job, without all that is forgotten."""
        return JobView(
            self.job_id,
            self.name,
            self.state,
            self.attempt,
            self.num_ranks,
            self.reason,
            self.message,
        )


def tombstone_of(job: Job, name: str) -> Tombstone:
    """The tombstone of a job that has ended."""
    cause = job.culprit
    return Tombstone(
        job.job_id,
        name,
        job.state,
        job.attempt,
        job.request.first_attempt,
        job.num_ranks,
        cause.reason if cause else None,
        cause.message[:_MESSAGE_CHARACTERS] if cause else None,
    )


class Tombstones:
    """The newest tombstones, by the jobs' ids."""

    def __init__(self, kept: int = KEPT):
        self._kept = kept
        self._by_id: OrderedDict[str, Tombstone] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, tombstone: Tombstone) -> None:
        """Put one up; the oldest goes if there are too many."""
        self._by_id[tombstone.job_id] = tombstone
        self._by_id.move_to_end(tombstone.job_id)
        while len(self._by_id) > self._kept:
            self._by_id.popitem(last=False)

    def get(self, job_id: str) -> Tombstone | None:
        """A job's; `None` if it has none."""
        return self._by_id.get(job_id)

    def remove(self, job_id: str) -> None:
        """Take it away, if there is one: the job is resumed."""
        self._by_id.pop(job_id, None)
