"""What a pass asks of the world, and what the world answers. A pass yields these, one at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.service.decide.seen import Sighting, Workers
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
    """What changed at the scheduler. Answer: `Told` or `Silence`."""

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
    """How many ranks projects have in use on all clusters. Answer: numbers by project."""

    projects: tuple[str, ...]


@dataclass(frozen=True)
class CountAttempts:
    """The highest attempt in a job's run directory. Answer: a number; `None` if it is not known."""

    job: Job


@dataclass(frozen=True)
class Begin:
    """Make or reopen the run directory. Answer: `None`, or `NotBegun`."""

    job: Job


@dataclass(frozen=True)
class Put:
    """Hand a job over. Answer: `Accepted`, `Refused` or `Silence`."""

    job: Job


@dataclass(frozen=True)
class SendCancel:
    """Ask for a job's end. Answer: `Accepted`, `Refused` or `Silence`.

    Attributes:
        newer_generation: Release the lease and take it again before, so that its generation grows.
    """

    job_id: str
    why: str
    grace_s: float | None = None
    newer_generation: bool = False


@dataclass(frozen=True)
class SendPriority:
    """Change the priority of a job that waits at the scheduler. Answer: as `Put`."""

    job: Job
    priority: int


@dataclass(frozen=True)
class TakeView:
    """Record in the run directory what was seen. No answer."""

    job: Job
    seen: Sighting


@dataclass(frozen=True)
class FinishRun:
    """Finish the run directory. Answer: whether that is done.

    Attributes:
        columns: How the job ends.
        seen: What the scheduler said of its end, if it did.
    """

    job: Job
    columns: Mapping[str, Any]
    seen: Sighting | None


Effect = (
    ReadJobs
    | FindJob
    | Poll
    | Commit
    | CountAttempts
    | CountRanks
    | Begin
    | Put
    | SendCancel
    | SendPriority
    | TakeView
    | FinishRun
)


@dataclass(frozen=True)
class Told:
    """A scheduler's answer about its jobs.

    Attributes:
        epoch: Its boot. Of another one than asked about, all jobs are told.
        revision: Where to go on.
        more: Whether the answer was cut, and another has to be asked for.
    """

    epoch: str
    revision: int
    more: bool = False
    workers: Workers = field(default_factory=Workers)
    jobs: tuple[Sighting, ...] = ()


@dataclass(frozen=True)
class Silence:
    """There was no answer: whether a command arrived is not known."""

    trouble: str = ""


@dataclass(frozen=True)
class Accepted:
    """The scheduler has done it, or had done it.

    Attributes:
        generation: Of the lease under which it was asked.
    """

    generation: int = 0


@dataclass(frozen=True)
class Refused:
    """The scheduler has not done it.

    Attributes:
        code: `epoch_changed`, `ended`, `bad_spec`, `unknown`, `not_pending`, ...
        ended: With `ended`: the job as its tombstone tells.
        generation: Of the lease under which it was asked.
    """

    code: str
    message: str = ""
    ended: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0


@dataclass(frozen=True)
class NotBegun:
    """A run directory cannot be written.

    Attributes:
        for_now: Whether somebody else writes it, so that a later try may succeed.
    """

    reason: str
    message: str
    for_now: bool = False


Outcome = Accepted | Refused | Silence
"""What becomes of a command."""
