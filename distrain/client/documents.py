"""A service's answers as values.

Services of other versions may send more or less: unknown fields stay in `document`, missing ones
have defaults, and a state may be a word that this version does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import UnionType
from typing import Any, Self, get_args, get_origin

from distrain.jobs.status import FINAL_STATES, JobFigures

LIVE_STATES = frozenset(
    {"queued", "handing_over", "pending", "starting", "running", "stopping", "restarting"}
    | {"cancelling", "unknown"}
)


@dataclass(frozen=True)
class Document:
    """A value from a service.

    Attributes:
        document: All of it, as the service sent it.
    """

    document: Mapping[str, Any] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read an object of JSON; what does not fit its field counts as missing."""
        values = values if isinstance(values, dict) else {}
        known = {one.name: one.type for one in fields(cls) if one.name != "document"}
        kept = {name: _fitting(values[name], known[name]) for name in known.keys() & values.keys()}
        return cls(**{name: v for name, v in kept.items() if v is not None}, document=values)


def _fitting(value: Any, declared: Any) -> Any:
    """A value if it is of a field's declared type; otherwise `None`."""
    if declared is Any:
        return value
    union = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    kinds = {get_origin(one) or one for one in union}
    if isinstance(value, list) and tuple in kinds:
        return tuple(value)
    if isinstance(value, dict) and Mapping in kinds:
        return value
    if type(value) is int and float in kinds:
        return float(value)
    return value if type(value) in kinds else None


@dataclass(frozen=True)
class Job(JobFigures, Document):
    """A job; its figures are described in `distrain.jobs.status.JobFigures`.

    Attributes:
        state: Such as `queued`, `running`, `succeeded`; a later service may have other words.
        last_known: With the state `unknown`: what it was when the scheduler was last heard.
        reason: Why it ended badly, in a word.
        message: The same in sentences.
        why_pending: Why it does not run yet.
        intent: What its users want: `run` or `cancel`.
        attempt: The current attempt's number; 0 before the first.
        created_at: RFC 3339, as all times.
        rev: Grows with each change.
        replayed: Whether `submit`, `resume` or `clone` found it: an earlier request, equal to
            this one, had made it.
    """

    id: str = ""
    name: str = ""
    project: str = ""
    owner: str = ""
    cluster: str = ""
    state: str = ""
    last_known: str | None = None
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    intent: str = "run"
    priority: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 0
    first_attempt: int = 1
    num_ranks: int = 0
    restarts: int = 0
    step: int = 0
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    observed_at: str | None = None
    run_dir: str = ""
    parent: str | None = None
    resumes: int = 0
    rev: int = 0
    replayed: bool = field(default=False, compare=False)

    @property
    def job_id(self) -> str:
        return self.id

    @property
    def is_final(self) -> bool:
        """Whether it has ended, and nothing changes unless somebody resumes it.

        >>> Job(state="failed").is_final, Job(state="running").is_final
        (True, False)
        >>> Job(state="expired", finished_at="2026-03-01T12:00:00Z").is_final  # of a later service
        True
        """
        if self.state in FINAL_STATES:
            return True
        return self.state not in LIVE_STATES and self.finished_at is not None


@dataclass(frozen=True)
class Event(Document):
    """An event of a stream.

    Attributes:
        id: The cursor after it, for `follow(after=...)`.
        kind: Such as `job.state`, `job.progress`, `reset`, `end`; a later service may have others.
        data: Its JSON values.
    """

    id: str = ""
    kind: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation(Document):
    """A service's verdict on a spec.

    Attributes:
        spec: As resolved, with defaults.
        errors: Mistakes, each with `pointer` and `detail`.
        placement: Where the job would run.
        notes: A worker's notes on the data, with `validate(data=True)`.
    """

    spec: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[Mapping[str, Any], ...] = ()
    placement: Any = None
    notes: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether `submit` would take it."""
        return not self.errors and self.document.get("valid", True) is not False


@dataclass(frozen=True)
class Cluster(Document):
    """A cluster of the service.

    Attributes:
        state: `up`, `silent`, `new`; a later service may have other words.
        details: What the service knows of its workers.
    """

    name: str = ""
    kind: str = ""
    state: str = ""
    max_priority: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    observed_at: str | None = None


@dataclass(frozen=True)
class Artifact(Document):
    """A file of a job's run directory.

    Attributes:
        name: Below the run directory, with `/`.
    """

    name: str = ""
    size_bytes: int | None = None
    modified_at: str | None = None


@dataclass(frozen=True)
class Records(Document):
    """Records of training and validation, as a run's `metrics.jsonl` has them.

    Attributes:
        cursor: As `metrics(since=...)` it gives what follows.
        restart: They are from the beginning: an attempt took steps again, and what was read before
            is void.
    """

    records: tuple[Mapping[str, Any], ...] = ()
    cursor: str = ""
    restart: bool = False


@dataclass(frozen=True)
class Me(Document):
    """The token's user, and its rights.

    Attributes:
        scopes: Of the token: `read`, `submit`, `cancel`, `admin`.
    """

    user: str = ""
    is_admin: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token(Document):
    """A token.

    Attributes:
        text: Its secret; only in the answer that made it.
    """

    id: str = ""
    user: str = ""
    label: str = ""
    scopes: tuple[str, ...] = ()
    created_at: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None
    used_at: str | None = None
    text: str | None = field(default=None, repr=False)


def parse_time(text: str | None) -> datetime | None:
    """A time of a service; `None` for another text.

    >>> parse_time("2026-03-01T12:00:00.5Z").isoformat()
    '2026-03-01T12:00:00.500000+00:00'
    """
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
