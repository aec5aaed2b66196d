"""The service's value classes of jobs, users, quotas and events.

Times are unix seconds. An unknown value is `None`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Intent(StrEnum):
    """The request of users for a job: to run, or to be cancelled."""

    RUN = "run"
    CANCEL = "cancel"


class Phase(StrEnum):
    """The progress of a job's current submission in the service.

    A submission is a job's first run, or one of its resumptions. Its phases follow each other.
    """

    QUEUED = "queued"  # only in the service's database
    HANDING_OVER = "handing_over"  # the command may have been sent: the scheduler may have the job
    HANDED_OVER = "handed_over"  # the scheduler has confirmed the job
    FINAL = "final"  # the job has ended; it only changes if it is resumed


NO_CONTACT_S = 30.0  # a job's state is unknown if its scheduler was silent for this time
CANCELLING = "cancelling"  # shown for a job whose cancellation was requested
UNKNOWN = "unknown"  # shown for a job whose scheduler does not answer


class Role(StrEnum):
    """The role of a user in a project; operators also have the rights of the other two roles."""

    VIEWER = "viewer"  # sees all jobs
    SUBMITTER = "submitter"  # submits jobs, and sees, changes and cancels their own jobs
    OPERATOR = "operator"  # sees, changes and cancels all jobs


class Scope(StrEnum):
    """The permitted uses of a token; they limit its user's roles."""

    READ = "read"
    SUBMIT = "submit"
    CANCEL = "cancel"
    ADMIN = "admin"


@dataclass(frozen=True)
class Principal:
    """The caller of a request: a user with their roles, limited by the scopes of a token."""

    user: str
    # whether the user operates the service, and may do everything
    is_admin: bool = False
    roles: Mapping[str, Role] = field(default_factory=dict)  # by project
    # the permitted uses of the token; all of them with sign-on by a proxy
    scopes: frozenset[Scope] = frozenset(Scope)
    token_id: str | None = None  # the request's token; `None` with sign-on by a proxy
    # by project, if they were read together with the token
    quotas: Mapping[str, "Quota"] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A job's row in the database; before there is one, the values from the job's submission."""

    id: str
    project: str
    owner: str
    name: str
    cluster: str
    priority: int
    num_ranks: int
    run_dir: str  # `RUN_ROOT/PROJECT/ID`
    tags: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    # the sequence number, larger for each new job; lists are ordered by it; 0: not in the database
    seq: int = 0
    created_at_s: float = 0.0
    rev: int = 1  # the revision, which grows with each change
    intent: Intent = Intent.RUN
    resumes: int = 0  # how many times it was resumed
    cancel_why: str = ""  # who or what cancelled it, and why
    # the seconds for its ranks to save a checkpoint; `None`: the scheduler decides
    cancel_grace_s: float | None = None
    phase: Phase = Phase.QUEUED  # see `Phase`
    first_attempt: int = 1  # the number of the current submission's first attempt
    epoch: str | None = None  # identifies the run of the scheduler's process that may have it
    scheduler_losses: int = 0  # how many times a scheduler lost this submission
    # the last known state at the coordinator: a `JobState`, or a state of a later version; `queued`
    # before the first
    state: str = "queued"
    attempt: int = 0
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    # its last metrics, see `distrain.jobs.status.JobFigures`
    progress: Mapping[str, Any] = field(default_factory=dict)
    observed_at_s: float | None = None  # when a change of its state or metrics was last written
    started_at_s: float | None = None
    finished_at_s: float | None = None
    queued_at_s: float | None = None  # when it was last resumed; `None`: never

    def age_s(self, now_s: float) -> float:
        """Return the seconds since the current submission: since the last resume, if any."""
        return max(0.0, now_s - (self.queued_at_s or self.created_at_s))

    @property
    def unused_attempt(self) -> int:
        """The first attempt number from `first_attempt` on that no hand-over may have used."""
        taken = self.phase is not Phase.QUEUED and self.attempt < self.first_attempt
        return self.first_attempt + taken


@dataclass(frozen=True)
class Attempt:
    """An attempt of a job, as the database has it."""

    job_id: str
    attempt: int
    epoch: str  # identifies the run of the scheduler's process that ran it
    started_at_s: float
    ended_at_s: float | None = None
    reason: str | None = None  # the reason why it ended
    message: str | None = None
    step: int | None = None  # the last reported step
    ranks: int | None = None  # its number of ranks; `None` until it has ended, or if unknown
    gpus: int | None = None  # the number of ranks on a GPU


@dataclass(frozen=True)
class Change:
    """New values of a job's row, written only if its revision is unchanged."""

    job: Job  # as it was read
    columns: Mapping[str, Any]  # by the names of `Job`
    # the attempts that begin or end; the start and an existing end of a stored attempt are kept
    attempts: Sequence[Attempt] = ()


_Limit = Annotated[int, Field(ge=0, lt=2**31)]


class Quota(BaseModel):
    """The limits of a project."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_ranks: _Limit | None = Field(
        None,
        description="The maximum number of ranks of jobs that run at the same time; null: no "
        "limit.",
    )
    max_queued: _Limit | None = Field(
        None, description="The maximum number of waiting jobs; null: no limit."
    )
    max_queued_per_user: _Limit | None = Field(
        100, description="The maximum number of waiting jobs of one user; null: no limit."
    )
    max_priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = Field(
        0,
        description="The highest priority that submitters may request; operators may request the "
        "cluster's.",
    )

    @property
    def counts_queued(self) -> bool:
        """Whether the number of queued jobs is limited."""
        return self.max_queued is not None or self.max_queued_per_user is not None


@dataclass(frozen=True)
class Event:
    """A change of a job, as streams send it."""

    seq: int  # without gaps, in the order of publication; the stream's cursor
    job_id: str
    project: str
    owner: str
    kind: str  # `job.state`, `job.progress` or `job.deleted`
    body: Mapping[str, Any]  # JSON values
    at_s: float
