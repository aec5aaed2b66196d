"""`World`: the external calls of one pass of the reconciler over a cluster's jobs.

The other classes are arguments and results of these calls.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distrain.errors import ClusterError, DistrainError
from distrain.jobs.api_answers import Job as SeenJob
from distrain.jobs.status import storable
from distrain.service.values import Change, Job


@dataclass(frozen=True)
class JobOrder:
    """A request to a scheduler to change a job."""

    name: str  # `cancel` or `priority`
    words: Mapping[str, Any]  # the fields of its body


@dataclass(frozen=True)
class Workers:
    """The numbers of a cluster's workers."""

    total: int = 0
    usable: int = 0  # workers that may get a rank
    free: int = 0  # usable workers without a rank
    gpus: int = 0


@dataclass(frozen=True)
class SchedulerAnswer:
    """A scheduler's answer to a query for the jobs that changed since a revision."""

    # identifies the run of the scheduler's process; if it is not that of the request, `jobs` has
    # all jobs, not only the changed ones
    epoch: str
    revision: int  # the revision from which to continue
    more: bool = False  # whether the answer is incomplete and must be continued
    workers: Workers = field(default_factory=Workers)
    jobs: tuple[SeenJob, ...] = ()


class Unreachable(ClusterError):
    """A scheduler sent no readable answer; it may still have carried out the request."""


class Refused(DistrainError):
    """A scheduler rejected a request to change a job, and has not carried it out.

    `code` and `status` are those of its error response: `epoch_changed`, `ended`, `bad_spec`,
    `not_found`, `not_pending`, ... `ended` is the job if the order came after its end.
    """

    def __init__(
        self, code: str, status: int, document: Mapping[str, Any], ended: SeenJob | None = None
    ):
        self.code = code
        self.status = status
        self.ended = ended
        hint = document.get("hint")
        super().__init__(
            storable(str(document.get("detail", f"the scheduler answered {status}"))),
            where={"code": code},
            hint=str(hint) if hint else None,
        )


class NotBegun(DistrainError):
    """A job's run folder cannot be prepared.

    `reason` is a `Reason`, and `for_now` whether a retry may succeed.
    """

    def __init__(self, reason: str, message: str, *, for_now: bool = False):
        self.reason, self.for_now = reason, for_now
        super().__init__(storable(message))


class World(Protocol):
    """The database, the scheduler and the run folders of one cluster, as the reconciler uses them.

    Between any two calls, other processes may change everything, and this process may be killed.
    `changes`, `put` and `send` raise Unreachable or Refused.
    """

    def alive(self) -> list[Job]:
        """Return the cluster's jobs that have not ended."""

    def job(self, job_id: str) -> Job | None:
        """Return a job, ended or not; `None` if it does not exist."""

    def commit(self, changes: Sequence[Change]) -> Collection[str]:
        """Write changes of jobs' rows in one transaction.

        Returns the ids of jobs whose rows were skipped, because their revision has changed.
        """

    def ranks_in_use(self, projects: Sequence[str]) -> Mapping[str, int]:
        """Return the ranks in use on all clusters, by project."""

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer:
        """Query the scheduler for jobs that changed since the revision `since` of an epoch."""

    def put(self, job: Job, now_s: float) -> None:
        """Submit a job to the scheduler at the time `now_s`, or repeat the request."""

    def send(self, job_id: str, order: JobOrder) -> None:
        """Send the scheduler an order (a request to change a job)."""

    def prepare(self, job: Job) -> int:
        """Create or update a job's run folder; return the highest attempt number in it, or 0.

        Raises `NotBegun` if the folder cannot be written, or the spec is not valid.
        """

    def finish(self, job: Job, columns: Mapping[str, Any]) -> None:
        """Write the summary of a job that ended without its scheduler; ignores failures.

        `columns` are the final values of the job's row.
        """
