"""What a scheduler was seen to have, as values: the other half of every decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs import JobState, JobView
from distrain.service.values import Job

_FINAL = {str(state) for state in JobState if state.is_final}


def is_final(state: str) -> bool:
    """Whether a coordinator's state is its last one; states of later versions are not."""
    return state in _FINAL


@dataclass(frozen=True)
class Sighting:
    """A job as its scheduler told of it last."""

    job_id: str
    service: str  # the service that handed it over; "" for a job of somebody else
    first_attempt: int  # of the submission that the scheduler has
    state: str
    attempt: int = 0
    priority: int = 0
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)  # its figures as lists show them
    # the job's view with the progress since the last answer, if this version can read it
    view: JobView | None = None

    @property
    def is_final(self) -> bool:
        """Whether the scheduler is done with it."""
        return is_final(self.state)


def tombstone(job: Job, document: Mapping[str, Any]) -> Sighting:
    """A job that has ended, as a refusal tells it: of its attempts, the last one's number alone."""
    attempt = int(document.get("attempt", 0))
    return Sighting(
        job.id,
        "",
        min(attempt, job.first_attempt),
        str(document.get("state", JobState.FAILED)),
        attempt,
        reason=document.get("reason"),
        message=document.get("message"),
    )


@dataclass(frozen=True)
class Workers:
    """Workers of a cluster, each with room for one rank."""

    total: int = 0
    usable: int = 0
    free: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class ClusterNow:
    """A cluster at one moment of one reconciler."""

    name: str
    # the boot of its scheduler; `None` before the first contact, and while it does not answer
    epoch: str | None = None
    since_s: float | None = None  # since when it answers, or does not
    trouble: str = ""  # why it does not answer, in words
    starting: bool = False  # whether somebody starts it
    workers: Workers = Workers()
    generation: int = 0  # of the reconciler's own lease
    most_workers: int | None = None  # where the service sets the number of workers: the largest
    growth: str = ""  # what keeps workers from coming that are asked for, in words

    @property
    def answers(self) -> bool:
        """Whether it answered when it was asked last."""
        return self.epoch is not None
