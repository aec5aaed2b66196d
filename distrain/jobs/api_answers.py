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
"""The values of `Job.state` of jobs that have not ended."""


class Answer(BaseModel):
    """A JSON object of the API; every field has a default, since older services do not send all."""

    model_config = ConfigDict(
        frozen=True, json_schema_serialization_defaults_required=True, defer_build=True
    )

    _document: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON object that `read` was given, with fields that this version does not define.

        Empty if the value was not made by `read`.
        """
        return self._document

    @classmethod
    def read(cls, values: Any) -> Self:
        """Return the answer for a JSON object from any version of distrain.

        A field that is missing or invalid gets its default. If `values` is not a `dict`, all fields
        get their defaults.
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
        "the cluster's state of the job: `pending`, `starting`, `running`, `stopping`, "
        "`restarting`, `succeeded`, `failed`, `cancelled`. Later versions may add states."
    ),
]


Metrics = dict[str, dict[str, float]]


class JobFigures(Answer):
    """A job's progress in numbers, each `None` while it is not known."""

    restarts: int | None = Field(
        None, description="Attempts that failed and were followed by another attempt."
    )
    step: int | None = Field(None, description="Completed training steps.")
    num_steps: int | None = Field(None, description="Training steps of the whole job.")
    rows_per_s: float | None = Field(None, description="Training rows per second.")
    loss: float | None = Field(
        None,
        description="The training loss of the last progress report. `valid_loss` measures the "
        "model.",
    )
    auc: float | None = Field(None, description="The training AUC of the same rows as `loss`.")
    valid_loss: float | None = Field(
        None,
        description="The validation loss of the saved model; during training, of the last "
        "validation.",
    )
    valid_auc: float | None = Field(
        None, description="The AUC of the same validation as `valid_loss`."
    )
    model_step: int | None = Field(
        None,
        description="Training steps of the saved model; after a refit, those of the best "
        "validation.",
    )
    refit_steps: int | None = Field(
        None,
        description="Steps of the second training, on training and validation rows; null without "
        "`train.refit`.",
    )
    stopped_early_step: int | None = Field(
        None, description="The step at which training stopped early; null if it did not."
    )
    eta_s: float | None = Field(
        None, description="Estimated seconds until the job ends, at its recent speed."
    )
    checkpoints: int | None = Field(None, description="The number of written checkpoints.")
    gpus: int | None = Field(
        None, description="Ranks of the last attempt that have a GPU of their own."
    )
    targets: Metrics | None = Field(
        None,
        description="Training metrics of the last progress report, by target and metric, for all "
        "targets except the first binary one.",
    )
    valid_targets: Metrics | None = Field(
        None,
        description="Metrics of the same validation as `valid_loss`, by target and metric, "
        "for all targets except the first binary one.",
    )

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers that are not `None`, by the names of their fields."""
        known = ((name, getattr(self, name)) for name in FIGURES)
        return {name: value for name, value in known if value is not None}


FIGURES = JobFigures.model_fields
"""The fields of `JobFigures` by name."""


class Job(JobFigures):
    """A job, as a service or a scheduler reports it.

    Fields that only a service has, such as the project, are empty in a scheduler's response.
    """

    id: str = ""
    name: str = ""
    project: str = ""
    owner: str = ""
    cluster: str = ""
    state: State = ""
    last_known: str | None = Field(
        None, description="The last state that the cluster reported, if it differs from `state`."
    )
    reason: str | None = Field(None, description="The reason of a bad end, in one word.")
    message: str | None = None
    why_pending: str = Field(
        "",
        description="What a waiting job waits for, or that the cluster is no longer configured; "
        "otherwise empty.",
    )
    priority: int = 0
    tags: dict[str, str] = {}
    attempt: int = Field(0, description="The number of the current attempt; 0 before the first.")
    first_attempt: int = Field(
        1,
        description="The number of the first attempt of the current submission; a resume is a new "
        "submission.",
    )
    num_ranks: int = Field(
        0,
        description="The current number of ranks; of a job without workers, the number that it "
        "needs.",
    )
    created_at: Time = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    observed_at: Time | None = Field(None, description="When its cluster last reported the job.")
    run_dir: str = ""
    parent: str | None = Field(None, description="The id of the job that it was cloned from.")
    resumes: int = 0
    rev: int = Field(0, description="The revision, which grows with each change.")
    service: str | None = Field(
        None,
        description="Only in a scheduler's response: the id of the service that submitted the "
        "job, if any.",
    )
    recorded: bool = Field(
        False,
        description="Whether an ended job's run folder is complete: nothing more is written to it.",
    )

    last_restart: dict[str, Any] | None = Field(
        None,
        description="The last attempt that ended early and was followed by another: its `attempt`, "
        "`reason`, `message` (one line) and `step`.",
    )

    _replayed: bool = PrivateAttr(default=False)

    @property
    def job_id(self) -> str:
        return self.id

    @property
    def replayed(self) -> bool:
        """Whether the job existed already, because an equal earlier request had created it.

        True only in the response to such a repeated request.
        """
        return self._replayed

    @property
    def age_s(self) -> float | None:
        """Seconds since the job was submitted, by this machine's clock; `None` if unknown."""
        created = parse_time(self.created_at)
        return max(0.0, time.time() - created.timestamp()) if created else None

    @property
    def why(self) -> str:
        """Why the job waits, or else the reason of its bad end.

        "" if there is neither, or if the reason only repeats the state.

        >>> Job(state="failed", reason="RankDied").why
        'RankDied'
        >>> Job(state="cancelled", reason="Cancelled").why
        ''
        """
        word = self.why_pending or self.reason or ""
        return "" if word.casefold() == self.state else word

    @property
    def is_final(self) -> bool:
        """Whether the job has ended; it does not change unless somebody resumes it.

        A job in a state that this version does not define has ended if it has `finished_at`.

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
    """Options for cancelling a job."""

    grace_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = Field(
        None,
        description="Seconds that ranks have to save a checkpoint; null: 3, or "
        "`deadlines.stop_grace_s` of the job spec if that is less.",
    )
    force: bool = Field(
        False, description="Whether to cancel without a checkpoint, as with a `grace_s` of 0."
    )
    why: Annotated[str, Field(max_length=1000)] = Field(
        "", description="The reason for cancelling, shown with the job."
    )

    @property
    def allowed_s(self) -> float | None:
        """Seconds that ranks get to save a checkpoint: 0 with `force`, otherwise `grace_s`.

        `None` lets the scheduler decide: 3 s, or the spec's `deadlines.stop_grace_s` if less.
        """
        return 0.0 if self.force else self.grace_s


class JobPage(Answer):
    """A page of jobs, newest first."""

    jobs: list[Job] = []
    next_cursor: str | None = Field(
        None, description="The `cursor` of the next page; null on the last page."
    )


class Event(Answer):
    """An event of the stream of events about jobs."""

    id: str = ""  # the cursor from which `follow(after=...)` continues after this event
    kind: str = ""  # `job.state`, `job.progress`, `reset`, `end`; a later service may have others
    data: dict[str, Any] = {}


class Spec(Answer):
    """A job's spec."""

    spec: dict[str, Any] = {}


class Mistake(Answer):
    """One mistake in a request's body or parameters."""

    model_config = ConfigDict(extra="allow")  # a worker that checks the data adds keys

    pointer: str = Field(
        "", description="A JSON pointer into the body, or `#` and the name of a parameter."
    )
    detail: str = ""


class Problem(Answer):
    """An error response (RFC 9457)."""

    type: str = Field("", description="`urn:distrain:problem:` followed by the code.")
    title: str = Field("", description="The same text for all problems of the code.")
    status: int = Field(0, description="The HTTP status.")
    detail: str = Field("", description="What failed in this request.")
    code: str = ""
    hint: str | None = Field(None, description="What to do next.")
    errors: list[Mistake] = Field([], description="The single mistakes of the request.")
    instance: str = Field("", description="The path of the request.")


class Validation(Answer):
    """The service's verdict on a spec."""

    valid: bool = True
    spec: dict[str, Any] | None = Field(None, description="The spec with all defaults.")
    errors: list[Mistake] = []
    notes: list[str] = Field(
        [],
        description="Always empty in this response; a check of the data has its notes in "
        "`Preflight`. `Client.validate(data=True)` copies them here.",
    )

    @property
    def is_good(self) -> bool:
        """Whether `submit` would accept the spec."""
        return self.valid and not self.errors


class Preflight(Answer):
    """A worker's check of the data of a job spec: its state and its results."""

    state: str = Field(
        "lost", description="`waiting`, `running`, `passed`, `failed` (see `errors`) or `lost`."
    )
    notes: list[str] = Field([], description="What was not checked, and warnings.")
    errors: list[dict[str, Any]] = Field(
        [], description="Mistakes, each with `message`, `where` and `hint`."
    )
    error: str | None = Field(None, description="Why the check could not be made.")


class Cluster(Answer):
    """A cluster."""

    name: str = ""
    kind: str = ""
    max_priority: int = 0
    allowed_roots: list[str] = []
    model_packages: list[str] = []
    state: str = Field(
        "", description="`up`, `silent` (no contact for 30 s), or `new` (no contact yet)."
    )
    details: dict[str, Any] = Field(
        {}, description="The last report of the reconciler, which runs the cluster's jobs."
    )
    observed_at: Time | None = Field(None, description="When its scheduler last answered.")


class Artifact(Answer):
    """A file of a job."""

    name: str = Field("", description="The path relative to the run folder.")
    size_bytes: int = 0
    modified_at: Time = ""


class Artifacts(Answer):
    """A page of files, in order of their names."""

    artifacts: list[Artifact] = []
    next_cursor: str | None = Field(
        None, description="The `after` of the next page; null on the last page."
    )


class Records(Answer):
    """Valid records of a job, in order, over all its attempts."""

    records: list[dict[str, Any]] = Field(
        [],
        description="Each has `split` (`train` or `valid`), `step`, `loss`, `auc`, "
        "`rows_per_s`, ...",
    )
    cursor: str = Field(
        "", description="The `since` of the next request, which returns the records after these."
    )
    restart: bool = Field(
        False,
        description="Whether the records start from the beginning, because an attempt repeated "
        "steps. Discard earlier records.",
    )
    more: bool = Field(False, description="Whether more records are already available.")
    damaged: int = Field(0, description="The number of lines that are not valid records.")


class Me(Answer):
    """The caller: user, roles and token scopes."""

    user: str = ""
    is_admin: bool = False
    roles: dict[str, str] = Field({}, description="The caller's roles by project.")
    scopes: list[str] = Field([], description="What the token permits.")


class Token(Answer):
    """A token, without its secret text."""

    id: str = ""
    user: str = ""
    label: str = ""
    scopes: list[str] = []
    created_at: Time = ""
    expires_at: Time = ""
    revoked_at: Time | None = None
    used_at: Time | None = Field(None, description="The time of the last use, to about a minute.")


class NewToken(Token):
    """A new token, with its text."""

    text: str = Field(
        "", repr=False, description="The token that its user sends. It is shown only once."
    )


def utc(at_s: float | None, timespec: str = "microseconds") -> str | None:
    """Return Unix seconds as an RFC 3339 time in UTC; `None` for `None`.

    `timespec` is passed to `datetime.isoformat`, which cuts off smaller units.

    >>> utc(0.25), utc(0.9, "seconds")
    ('1970-01-01T00:00:00.250000Z', '1970-01-01T00:00:00Z')
    """
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec=timespec)[:-6] + "Z"


def parse_time(text: str | None) -> datetime | None:
    """Parse a time as `datetime.fromisoformat` does; return `None` for `None` and invalid texts.

    A text without a time zone gives a datetime without a time zone.

    >>> parse_time("2026-03-01T12:00:00.5Z").isoformat()
    '2026-03-01T12:00:00.500000+00:00'
    """
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
