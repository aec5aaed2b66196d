"""What a pass may ask and do outside of this process, and the values that it gets back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distrain.jobs.documents import Job as SeenJob
from distrain.service.values import Job


@dataclass(frozen=True)
class Change:
    """New values of a row, unless its revision is another one by now."""

    job: Job
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class JobOrder:
    """An order about a job: `cancel` or `priority`."""

    name: str
    words: Mapping[str, Any]


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
    jobs: tuple[SeenJob, ...] = ()


@dataclass(frozen=True)
class Silence:
    """No answer: whether a command arrived is unknown."""

    trouble: str = ""


@dataclass(frozen=True)
class Accepted:
    """The scheduler has done it, or had done it."""


@dataclass(frozen=True)
class Refusal:
    """The scheduler has not done it."""

    code: str  # `epoch_changed`, `ended`, `bad_spec`, `not_found`, `not_pending`, ...
    message: str = ""
    ended: SeenJob | None = None  # with `ended`: how the job ended, if the scheduler says so


@dataclass(frozen=True)
class NotBegun:
    reason: str
    message: str
    for_now: bool = False  # whether somebody else writes it, so that a later try may succeed


Outcome = Accepted | Refusal | Silence  # what becomes of a command


class World(Protocol):
    """The database, the scheduler and the run folders of one cluster.

    A pass calls these in order. Between any two calls other processes act, and this one may be
    killed.
    """

    def alive(self) -> list[Job]:
        """Return the cluster's jobs that have not ended."""

    def job(self, job_id: str) -> Job | None:
        """Return a job, ended or not."""

    def commit(self, changes: Sequence[Change]) -> Collection[str]:
        """Write rows in one transaction; return the ids of those that were left out."""

    def ranks_in_use(self, projects: Sequence[str]) -> Mapping[str, int]:
        """Return the ranks in use on all clusters, by project."""

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer | Silence:
        """Ask the scheduler what changed since a revision of that epoch."""

    def put(self, job: Job) -> Outcome:
        """Hand a job to the scheduler."""

    def send(self, job_id: str, order: JobOrder) -> Outcome:
        """Send the scheduler an order about a job."""

    def prepare(self, job: Job) -> int | NotBegun:
        """Begin or update a job's run folder; return the highest attempt there."""

    def finish(self, job: Job, columns: Mapping[str, Any]) -> None:
        """Write the summary of a job that no scheduler ends, as far as that works."""
