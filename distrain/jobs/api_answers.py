"""The answers of the HTTP API about jobs: one definition for services, schedulers and clients.

Services and schedulers write them; the client reads them. The sender may have another version, with
more or fewer fields. So `Answer.read` treats values of a wrong type as missing, and `state` may be
a word that this version does not define. Times are RFC 3339 in UTC.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from distrain.jobs.states import FINAL_STATES

LIVE_STATES = frozenset(
    {"queued", "handing_over", "pending", "starting", "running", "stopping", "restarting"}
    | {"cancelling", "unknown"}
)


class Answer(BaseModel):
    """A document of the API; every field has a default for services that do not send it."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    _document: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> Mapping[str, Any]:
        """Everything that the service sent, including fields that this version does not define."""
        return self._document

    @classmethod
    def read(cls, values: Any) -> Self:
        """Return the document for JSON values from any version.

        A field that is missing, or has a wrong type, gets its default.
        """
        values = values if isinstance(values, dict) else {}
        try:
            found = cls.model_validate(values)
        except ValidationError as error:
            wrong = {mistake["loc"][0] for mistake in error.errors()}
            found = cls.model_validate({k: v for k, v in values.items() if k not in wrong})
        found._document = values
        return found


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
State = Annotated[
    str,
    Field(
        description="`queued`, `handing_over`, `cancelling`, `unknown` (no contact for 30 s), or "
        "the state in which its cluster has it: `pending`, `starting`, `running`, `stopping`, "
        "`restarting`, `succeeded`, `failed`, `cancelled`. Later versions may know more."
    ),
]


Metrics = dict[str, dict[str, float]]


class JobFigures(Answer):
    """A job's progress in numbers, each `None` while it is not known."""

    restarts: int | None = Field(
        None, description="Attempts that ended early and were followed by others."
    )
    step: int | None = Field(None, description="Steps that have been taken.")
    num_steps: int | None = Field(None, description="Steps that it will take.")
    rows_per_s: float | None = Field(None, description="Rows trained per second.")
    loss: float | None = Field(
        None, description="Of the last report of training; `valid_loss` counts."
    )
    auc: float | None = Field(None, description="Of the same rows as `loss`.")
    valid_loss: float | None = Field(
        None,
        description="Of the validation of the saved model; while it trains, of the last "
        "validation.",
    )
    valid_auc: float | None = Field(None, description="Of the same validation as `valid_loss`.")
    model_step: int | None = Field(
        None,
        description="Training steps of the saved model; after a refit, those of the best "
        "validation before it.",
    )
    refit_steps: int | None = Field(
        None,
        description="Steps of the second training, with the validation rows; null without "
        "`train.refit`.",
    )
    eta_s: float | None = Field(None, description="Seconds until its end, at its recent speed.")
    checkpoints: int | None = Field(None, description="Checkpoints that were written.")
    gpus: int | None = Field(
        None, description="Ranks of the last attempt that compute on a GPU of their own."
    )
    targets: Metrics | None = Field(
        None,
        description="Metrics by name of each target but the first binary one, by its name; of the "
        "last report of training.",
    )
    valid_targets: Metrics | None = Field(
        None, description="The same, of the validation of `valid_loss`."
    )

    @property
    def figures(self) -> dict[str, Any]:
        """The known figures by name."""
        known = ((name, getattr(self, name)) for name in FIGURES)
        return {name: value for name, value in known if value is not None}


FIGURES = JobFigures.model_fields
"""The fields of `JobFigures` by name."""


class Job(JobFigures):
    """A job, as a service or a scheduler reports it.

    Fields that only a service has, such as the project, are empty in a scheduler's answer.
    """

    id: str = ""
    name: str = ""
    project: str = ""
    owner: str = ""
    cluster: str = ""
    state: State = ""
    last_known: str | None = Field(
        None, description="The cluster's last word, where `state` is not it."
    )
    reason: str | None = Field(None, description="Why it ended badly, in a word.")
    message: str | None = None
    why_pending: str = Field("", description="What it waits for; empty where it does not wait.")
    intent: str = Field("run", description="`run` or `cancel`.")
    priority: int = 0
    tags: dict[str, str] = {}
    attempt: int = Field(0, description="The current attempt; 0 before the first.")
    first_attempt: int = Field(1, description="Of its current submission.")
    num_ranks: int = Field(0, description="Ranks that it has; while it has none, those it needs.")
    created_at: Time = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    observed_at: Time | None = Field(None, description="When its cluster was last heard about it.")
    run_dir: str = ""
    parent: str | None = Field(None, description="The job that it is a clone of.")
    resumes: int = 0
    rev: int = Field(0, description="Grows with each change; the ETag.")
    service: str | None = Field(
        None, description="In a scheduler's answer: the service that submitted it, if one did."
    )
    recorded: bool = Field(
        False, description="Of a job that has ended: nothing more is written into its run folder."
    )

    _replayed: bool = PrivateAttr(default=False)

    @property
    def job_id(self) -> str:
        return self.id

    @property
    def replayed(self) -> bool:
        """Whether the job already existed, made by an identical earlier request."""
        return self._replayed

    @property
    def age_s(self) -> float | None:
        """Seconds since the job was submitted, by this machine's clock; `None` if unknown."""
        created = parse_time(self.created_at)
        return max(0.0, time.time() - created.timestamp()) if created else None

    @property
    def is_final(self) -> bool:
        """Whether the job has ended; it does not change unless somebody resumes it.

        >>> Job(state="failed").is_final, Job(state="running").is_final
        (True, False)
        >>> Job(state="expired", finished_at="2026-03-01T12:00:00Z").is_final  # of a later service
        True
        """
        if self.state in FINAL_STATES:
            return True
        return self.state not in LIVE_STATES and self.finished_at is not None


Priority = Annotated[int, Field(ge=-(2**31) + 1, le=2**31 - 1, strict=True)]


class CancelOptions(BaseModel):
    """How a job is cancelled."""

    grace_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = Field(
        None, description="What its ranks get to save a checkpoint; `null`: what its spec says."
    )
    force: bool = Field(False, description="The same as a grace of 0 s.")
    why: Annotated[str, Field(max_length=1000)] = Field("", description="For those who look later.")

    @property
    def allowed_s(self) -> float | None:
        """Seconds that ranks get to save a checkpoint; `None`: as the job spec says."""
        return 0.0 if self.force else self.grace_s


class JobPage(Answer):
    """A page of jobs, newest first."""

    jobs: list[Job] = []
    next_cursor: str | None = Field(
        None, description="For the next page; `null`: this is the last."
    )


class Event(Answer):
    """An event of a stream."""

    id: str = ""  # the cursor from which `follow(after=...)` continues after this event
    kind: str = ""  # `job.state`, `job.progress`, `reset`, `end`; a later service may have others
    data: dict[str, Any] = {}


class Spec(Answer):
    """A job's spec."""

    spec: dict[str, Any] = {}


class Mistake(Answer):
    """One mistake of a request."""

    model_config = ConfigDict(extra="allow")  # a worker that checks the data adds keys

    pointer: str = Field("", description="A JSON pointer into the body, or `#` and a parameter.")
    detail: str = ""


class Problem(Answer):
    """An error response (RFC 9457)."""

    type: str = Field("", description="`urn:distrain:problem:` and the code.")
    title: str = Field("", description="The same for all problems of the code.")
    status: int = Field(0, description="The HTTP status.")
    detail: str = Field("", description="What failed here.")
    code: str = ""
    hint: str | None = Field(None, description="What to do next.")
    errors: list[Mistake] = Field([], description="Single mistakes.")
    instance: str = Field("", description="The request's path.")


class Placement(Answer):
    """The cluster where a job would run, and the workers of that cluster."""

    cluster: str | None = None
    num_ranks: int | None = None
    workers: dict[str, Any] | None = Field(None, description="What the cluster has, as last heard.")
    observed_at: Time | None = None


class Validation(Answer):
    """The service's verdict on a spec."""

    valid: bool = True
    spec: dict[str, Any] | None = Field(None, description="With all its defaults.")
    errors: list[Mistake] = []
    placement: Placement = Placement()
    notes: list[str] = Field([], description="Of a worker that has looked at the data.")

    @property
    def is_good(self) -> bool:
        """Whether `submit` would accept the spec."""
        return self.valid and not self.errors


class Preflight(Answer):
    """The state and the results of the check of a spec's data, which a worker does."""

    state: str = Field(
        "lost", description="`waiting`, `running`, `passed`, `failed` (see `errors`) or `lost`."
    )
    notes: list[str] = Field([], description="What was not checked, and what may surprise.")
    errors: list[dict[str, Any]] = Field(
        [], description="Mistakes, each with `message`, `where` and `hint`."
    )
    error: str | None = Field(None, description="Why it could not be checked.")


class Cluster(Answer):
    """A cluster."""

    name: str = ""
    kind: str = ""
    max_priority: int = 0
    allowed_roots: list[str] = []
    model_packages: list[str] = []
    state: str = Field(
        "", description="`up`, `silent` (not heard for 30 s), or `new` (never heard)."
    )
    details: dict[str, Any] = Field({}, description="What its reconciler wrote of it last.")
    observed_at: Time | None = Field(None, description="When its scheduler was last heard.")


class Artifact(Answer):
    """A file of a job."""

    name: str = Field("", description="Relative to the run directory.")
    size_bytes: int = 0
    modified_at: Time = ""


class Artifacts(Answer):
    """A page of files, in order of their names."""

    artifacts: list[Artifact] = []
    next_cursor: str | None = Field(
        None, description="As `after` for the next page; `null`: the last."
    )


class Records(Answer):
    """Valid records of a job, in order, over all its attempts."""

    records: list[dict[str, Any]] = Field(
        [], description="`split` is `train` or `valid`; `step`, `loss`, `auc`, `rows_per_s`, ..."
    )
    cursor: str = Field("", description="As `since` it gives what follows.")
    restart: bool = Field(
        False,
        description="These are from the beginning: forget what was read before, since an attempt "
        "took steps again.",
    )
    more: bool = Field(False, description="There is more already.")
    damaged: int = Field(0, description="Lines that are no records.")


class Me(Answer):
    """The caller: user, roles and token scopes."""

    user: str = ""
    is_admin: bool = False
    roles: dict[str, str] = Field({}, description="By project.")
    scopes: list[str] = Field([], description="What the token may be used for.")
    projects: list[str] = Field([], description="Those in which the caller has a role.")


class Token(Answer):
    """A token, without its secret text."""

    id: str = ""
    user: str = ""
    label: str = ""
    scopes: list[str] = []
    created_at: Time = ""
    expires_at: Time = ""
    revoked_at: Time | None = None
    used_at: Time | None = Field(None, description="To about a minute.")


class NewToken(Token):
    """A new token, with its text."""

    text: str = Field("", repr=False, description="What its user sends; it is shown this once.")


def utc(at_s: float | None, timespec: str = "microseconds") -> str | None:
    """Return Unix seconds as an RFC 3339 time in UTC; `None` for `None`.

    `timespec` is that of `datetime.isoformat`.

    >>> utc(0.25), utc(0.9, "seconds")
    ('1970-01-01T00:00:00.250000Z', '1970-01-01T00:00:00Z')
    """
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec)[:-6] + "Z"


def parse_time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time; return `None` for `None` or any other text.

    >>> parse_time("2026-03-01T12:00:00.5Z").isoformat()
    '2026-03-01T12:00:00.500000+00:00'
    """
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
