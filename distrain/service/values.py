"""The service's values of jobs, users and clusters; nothing here does any work.

Times are unix seconds. An unknown value is `None`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Intent(StrEnum):
    """The users' wish for a job."""

    RUN = "run"
    CANCEL = "cancel"


class Phase(StrEnum):
    """The progress of a job's current submission in the service.

    A submission is a job's first run, or one of its resumptions. Its phases follow each other.
    """

    QUEUED = "queued"  # here, in the database alone
    HANDING_OVER = "handing_over"  # committed before the scheduler is asked: it may have the job
    HANDED_OVER = "handed_over"  # the scheduler has said that it has the job
    FINAL = "final"  # nothing will change, unless somebody resumes it


NO_CONTACT_S = 30.0  # after this long without a word of its scheduler, a job's state is unknown
CANCELLING = "cancelling"  # shown of a job that shall end
UNKNOWN = "unknown"  # shown of a job whose scheduler is silent


class Role(StrEnum):
    """The rights of a user in a project, from the least to the most."""

    VIEWER = "viewer"  # sees all jobs
    SUBMITTER = "submitter"  # submits jobs, and sees, changes and cancels those of their own
    OPERATOR = "operator"  # all jobs, members and quotas of the project


class Scope(StrEnum):
    """The permitted uses of a token; they limit its user's roles."""

    READ = "read"
    SUBMIT = "submit"
    CANCEL = "cancel"
    ADMIN = "admin"


@dataclass(frozen=True)
class Principal:
    user: str
    # whether they operate the service: every project, clusters, users, audit
    is_admin: bool = False
    roles: Mapping[str, Role] = field(default_factory=dict)  # by project
    # what their token, or their sign-on, may be used for
    scopes: frozenset[Scope] = frozenset(Scope)
    token_id: str | None = None  # the token that they showed; `None` with sign-on by a proxy
    # of their projects, where they were read with the token
    quotas: Mapping[str, "Quota"] = field(default_factory=dict)


@dataclass(frozen=True)
class JobHead:
    """The values of a job that its submission decides."""

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


@dataclass(frozen=True)
class Job(JobHead):
    """A job as the database has it."""

    seq: int  # grows with each job: lists are ordered by it
    created_at_s: float
    rev: int = 1  # grows with each change; its ETag
    intent: Intent = Intent.RUN
    resumes: int = 0  # how often it was resumed
    cancel_why: str = ""  # who wanted its end, or what
    # what its ranks get to save a checkpoint; `None` takes the spec's
    cancel_grace_s: float | None = None
    phase: Phase = Phase.QUEUED  # see `Phase`
    first_attempt: int = 1  # the number of the current submission's first attempt
    epoch: str | None = None  # the boot of the scheduler that has it, or may have it
    scheduler_losses: int = 0  # how often a scheduler lost this submission
    # the coordinator's state as seen last, a `JobState` or one of a later version; `queued` before
    # the first sight
    state: str = "queued"
    attempt: int = 0
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    # its known figures, see `distrain.jobs.status.JobFigures`
    progress: Mapping[str, Any] = field(default_factory=dict)
    observed_at_s: float | None = None  # when the scheduler was last heard about it
    started_at_s: float | None = None
    finished_at_s: float | None = None


@dataclass(frozen=True)
class NewJob(JobHead):
    """A job to make, checked and resolved."""

    spec: Mapping[str, Any]  # the resolved spec as JSON values
    request_sha256: str = ""  # of the request that makes it; an equal one is a repetition


@dataclass(frozen=True)
class Quota:
    """The limits of a project; `None`: any number."""

    max_ranks: int | None = None  # ranks of jobs that are handed over
    max_queued: int | None = None  # jobs that have not ended and hold no workers
    max_queued_per_user: int | None = 100  # the same of one user
    # the highest priority that a submitter may ask for; an operator may ask for the cluster's
    max_priority: int = 0

    @property
    def counts_queued(self) -> bool:
        """Whether queued jobs are counted at all."""
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
