"""What a scheduler was seen to have, as values: the other half of every decision."""

from dataclasses import dataclass, replace

from distrain.jobs import JobState, JobStatus
from distrain.service.values import Job


def tombstone(job: Job, ended: JobStatus | None) -> JobStatus:
    """A job that has ended, as a refusal says it: of its attempts, the last one's number alone."""
    last = ended or JobStatus(job.id)
    return replace(
        last,
        job_id=job.id,
        service=None,
        state=last.state or str(JobState.FAILED),
        first_attempt=min(last.attempt, job.first_attempt),
    )


@dataclass(frozen=True)
class Workers:
    """Workers of a cluster, each with room for one rank."""

    total: int = 0
    usable: int = 0  # those that may be given a rank
    free: int = 0  # those of them without one
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
        return self.epoch is not None
