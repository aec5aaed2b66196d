"""What a scheduler answers, as values. Pure.

Read tolerantly, since it may be of another version, and with suspicion, since whoever runs code on
a cluster can run it in the scheduler: a value of another type, a number that no database holds or
a text without end goes no further than here.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pydantic_core import from_json

from distrain.jobs import JobView

Value = TypeVar("Value")

_LARGEST = 2**63 - 1
_TEXTS = {"reason": 200, "message": 8000, "why_pending": 2000}
"""Texts of a job that the database keeps, and how many characters of them."""
_NAME = 300
_COUNTS = ("attempt", "num_steps", "next_record", "missed")
FIGURES = ("step", "rows_per_s", "loss", "auc", "valid_loss", "valid_auc", "eta_s")
"""What lists show of a job's progress; `loss` and `auc` are of training."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_DIGITS_AS_0 = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE_EXPONENT = re.compile(rb"e\+?000+\s*(?:[,\]}]|\Z)")  # the end keeps most ids out
"""Without these, and 19 digits in a row, no number is out of range."""
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


@dataclass(frozen=True)
class SeenJob:
    """A job as its scheduler shows it."""

    job_id: str
    state: str  # a `JobState`, or the word of a later version
    run_dir: str
    service: str | None = None  # the service that put it there; `None`: it came by another way
    first_attempt: int = 1  # the number of its first attempt there
    priority: int = 0
    attempt: int = 0
    submitted_s: float | None = None  # Unix seconds
    step: int = 0
    rows_per_s: float | None = None
    loss: float | None = None
    auc: float | None = None
    valid_loss: float | None = None
    valid_auc: float | None = None
    eta_s: float | None = None
    # all that is shown, with the progress that is new; `None` if this version cannot read it, as
    # with a state of a later version: `document` has it as it came
    view: JobView | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_final(self) -> bool:
        """Whether it has ended; a state that this version does not know is no end."""
        return self.view is not None and self.view.state.is_final

    @property
    def first_entry(self) -> int:
        """The number of the first entry in `view.progress`; entries count from 0."""
        return self.view.next_record - len(self.view.progress) if self.view else 0


_OF_JOBS = {f.name for f in fields(SeenJob)} - {"state", "view", "document", "attempt"}


@dataclass(frozen=True)
class WorkerCounts:
    """Workers of a cluster: all, those a rank may be given, those of them without one, GPUs."""

    total: int = 0
    usable: int = 0
    free: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class SeenWorker:
    """One worker; `job` and `rank` are `None` while it has no rank."""

    address: str
    name: str = ""
    host: str = ""
    gpu: str | None = None
    usable: bool = True
    job: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Changes:
    """What changed of a scheduler's jobs."""

    epoch: str  # of the scheduler's start. If it is another one, the jobs that it lacks are lost
    revision: int  # what to ask from next
    more: bool = False  # ask again at once
    jobs: tuple[SeenJob, ...] = ()
    workers: WorkerCounts = WorkerCounts()
    # by service, the highest that the scheduler has seen
    generations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a job ended that the scheduler has forgotten, or that was put there once more."""

    job_id: str
    state: str
    attempt: int = 0  # the last one that it had, or was put for
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class SeenPreflight:
    """A check of a spec on a worker."""

    state: str  # `waiting`, `running`, `passed`, `failed` (see `errors`) or `lost` (see `error`)
    notes: tuple[str, ...] = ()  # what was not checked, and what may surprise
    errors: tuple[Mapping[str, Any], ...] = ()  # mistakes, each with `message`, `where` and `hint`
    error: str | None = None  # why it could not be checked
    plan: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("waiting", "running")


def changes_from_json(document: Mapping[str, Any]) -> Changes:
    """An answer to `GET /distrain/v1/jobs`; raises KeyError, TypeError, ValueError: it is none."""
    workers = document.get("workers", {})
    for name in workers.keys() & {f.name for f in fields(WorkerCounts)}:
        _count(workers, name)
    return Changes(
        _name(document, "epoch"),
        _count(document, "revision"),
        bool(document.get("more", False)),
        tuple(job_from_json(job) for job in document["jobs"]),
        _known(WorkerCounts, workers),
        {str(name): int(one) for name, one in document.get("services", {}).items()},
    )


def job_from_json(document: Mapping[str, Any]) -> SeenJob:
    """One job of it; raises KeyError, TypeError, ValueError: it is none."""
    shown = told(document["view"])
    state = _name(shown, "state")
    try:
        view: JobView | None = JobView.from_json(shown)
    except (AttributeError, KeyError, TypeError, ValueError):
        view = None
    values = {name: document[name] for name in _OF_JOBS if document.get(name) is not None}
    for name in values.keys() & {"job_id", "run_dir", "service"}:
        _name(values, name, 4096)
    for name in values.keys() & {"first_attempt", "priority"}:
        _count(values, name)
    for name in values.keys() & {*FIGURES, "submitted_s"}:
        if not is_figure(values[name]):
            raise TypeError(f"{name} is no number")
    attempt = int(shown.get("attempt", 0))
    whole = {**document, "view": shown}
    return SeenJob(state=state, attempt=attempt, view=view, document=whole, **values)


def told(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A job as it is shown, whose texts and counts are what the database keeps.

    Raises:
        TypeError, ValueError: One of them is something else.
    """
    found = dict(shown)
    for name, most in _TEXTS.items():
        text = found.get(name)
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} is no text")
        if text and len(text) > most:
            found[name] = text[: most - 4] + " ..."
    for name in _COUNTS:
        if found.get(name) is not None:
            _count(found, name)
    return found


def is_figure(value: object) -> bool:
    """Whether a value is a number that JSON and databases can carry."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= _LARGEST
        and math.isfinite(value)
    )


def document_of(content: bytes) -> Any:
    """The JSON of an answer, without characters that no database keeps.

    Raises:
        ValueError, RecursionError: It is no JSON, or has numbers that are none.
    """
    if _ESCAPED.search(content):
        # A rank's message may have them: that must not make the whole cluster unreadable.
        return _storable(json.loads(content.decode(), parse_constant=_no_number))
    found = from_json(content, allow_inf_nan=False)  # half the time of json, and stricter
    if _may_be_large(content):
        _check_numbers(found)
    return found


def _may_be_large(content: bytes) -> bool:
    """Whether a number in it may be out of range; a third of the time of looking at each.

    >>> _may_be_large(b'{"step": 1234567890, "loss": 0.1234567890123456, "id": "1e400"}')
    False
    >>> _may_be_large(b"9223372036854775808"), _may_be_large(b"1E+400"), _may_be_large(b"1e-400")
    (True, True, False)
    """
    digits = content.translate(_DIGITS_AS_0)
    return 19 * b"0" in digits or _LARGE_EXPONENT.search(digits) is not None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_storable(inner) for inner in value]
    _check_numbers(value)
    return value


def _check_numbers(value: Any) -> None:
    kind = type(value)
    if kind is dict or kind is list:
        for inner in value.values() if kind is dict else value:
            if type(inner) is not str:
                _check_numbers(inner)
    elif kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    elif kind is int and abs(value) > _LARGEST:
        raise ValueError(f"{str(value)[:25]} is too large")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _count(document: Mapping[str, Any], name: str) -> int:
    value = document[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is no whole number")
    return value


def _name(document: Mapping[str, Any], name: str, most: int = _NAME) -> str:
    value = document[name]
    if not isinstance(value, str) or len(value) > most:
        raise TypeError(f"{name} is no name")
    return value


def workers_from_json(documents: Sequence[Mapping[str, Any]]) -> tuple[SeenWorker, ...]:
    """All workers."""
    return tuple(_known(SeenWorker, worker) for worker in documents)


def ended_from_json(document: Mapping[str, Any]) -> Ended:
    """How a job ended."""
    return _known(Ended, document)


def preflight_from_json(document: Mapping[str, Any]) -> SeenPreflight:
    """A check."""
    one = _known(SeenPreflight, document)
    notes = tuple(map(str, one.notes))
    errors = tuple(dict(error) for error in one.errors)
    error = None if one.error is None else str(one.error)
    return SeenPreflight(str(one.state), notes, errors, error, one.plan)


def _known(kind: type[Value], document: Mapping[str, Any]) -> Value:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]  # of dataclasses alone
    return kind(**{name: value for name, value in document.items() if name in names})
