"""The effects of a pass, and their answers. A pass yields these, one at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.status import JobStatus
from distrain.service.values import Job


@dataclass(frozen=True)
class ReadJobs:
    """The cluster's jobs that have not ended. Answer: a list of `Job`."""


@dataclass(frozen=True)
class FindJob:
    """A job by its id, ended or not. Answer: a `Job`, or `None`."""

    job_id: str


@dataclass(frozen=True)
class Poll:
    """The changes at the scheduler. Answer: `SchedulerAnswer` or `Silence`."""

    epoch: str | None
    since: int


@dataclass(frozen=True)
class Change:
    """New values of a row, unless its revision is another one by now."""

    job: Job
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Commit:
    """Write rows, in one transaction. Answer: the ids of those that were left out."""

    changes: tuple[Change, ...]


@dataclass(frozen=True)
class CountRanks:
    """Answer: the ranks of projects in use on all clusters, by project."""

    projects: tuple[str, ...]


@dataclass(frozen=True)
class Prepare:
    """Begin or update the run folder. Answer: the highest attempt there, or `NotBegun`."""

    job: Job


@dataclass(frozen=True)
class Put:
    """Hand a job over. Answer: `Accepted`, `Refusal` or `Silence`."""

    job: Job


@dataclass(frozen=True)
class JobOrder:
    """An order about a job, which the scheduler takes at `jobs/ID/NAME`."""

    name: str
    words: Mapping[str, Any]
    # release the lease and take it again before, so that its generation grows and the scheduler
    # refuses a PUT that may still be under way
    newer_generation: bool = False


@dataclass(frozen=True)
class Send:
    """Send an order about a job. Answer: `Accepted`, `Refusal` or `Silence`."""

    job_id: str
    order: JobOrder


@dataclass(frozen=True)
class FinishRun:
    """Write the summary of a job that no scheduler ends, as far as that works. No answer."""

    job: Job
    columns: Mapping[str, Any]  # how the job ends


Effect = ReadJobs | FindJob | Poll | Commit | CountRanks | Prepare | Put | Send | FinishRun


@dataclass(frozen=True)
class Workers:
    total: int = 0
    usable: int = 0  # those that may be given a rank
    free: int = 0  # those of them without one
    gpus: int = 0


@dataclass(frozen=True)
class SchedulerAnswer:
    epoch: str  # its boot. Of another one than asked about, all jobs are told
    revision: int  # where to go on
    more: bool = False  # whether the answer was cut, and another has to be asked for
    workers: Workers = field(default_factory=Workers)
    jobs: tuple[JobStatus, ...] = ()


@dataclass(frozen=True)
class Silence:
    """No answer: whether a command arrived is unknown."""

    trouble: str = ""


@dataclass(frozen=True)
class Accepted:
    """The scheduler has done it, or had done it."""

    generation: int = 0  # of the lease under which it was asked


@dataclass(frozen=True)
class Refusal:
    """The scheduler has not done it."""

    code: str  # `epoch_changed`, `ended`, `bad_spec`, `unknown`, `not_pending`, ...
    message: str = ""
    ended: JobStatus | None = None  # with `ended`: how the job ended, if the scheduler says so
    generation: int = 0  # of the lease under which it was asked


@dataclass(frozen=True)
class NotBegun:
    reason: str
    message: str
    for_now: bool = False  # whether somebody else writes it, so that a later try may succeed


Outcome = Accepted | Refusal | Silence  # what becomes of a command
