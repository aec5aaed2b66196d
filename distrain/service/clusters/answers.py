"""What a scheduler answers, as values. Pure.

Read tolerantly, since it may be of another version, and with suspicion, since whoever runs code on
a cluster can run it in the scheduler: a text of another type, a number that no database holds or
a text without end goes no further than here.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from pydantic_core import from_json

from distrain.jobs import LARGEST, JobStatus, storable
from distrain.service.decide import SchedulerAnswer, Workers

Value = TypeVar("Value")

_MOST_OF_AN_EPOCH = 300
_DIGITS_AS_0 = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE_EXPONENT = re.compile(rb"e\+?000+\s*(?:[,\]}]|\Z)")  # the end keeps most ids out
"""Without these, and 19 digits in a row, no number is out of range."""
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


@dataclass(frozen=True)
class SeenPreflight:
    state: str  # `waiting`, `running`, `passed`, `failed` (see `errors`) or `lost` (see `error`)
    notes: tuple[str, ...] = ()  # what was not checked, and what may surprise
    errors: tuple[Mapping[str, Any], ...] = ()  # mistakes, each with `message`, `where` and `hint`
    error: str | None = None  # why it could not be checked
    plan: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


def told_from_json(document: Mapping[str, Any]) -> SchedulerAnswer:
    epoch = document["epoch"]
    if not isinstance(epoch, str) or len(epoch) > _MOST_OF_AN_EPOCH:
        raise TypeError("epoch is no name")
    workers = _known(Workers, document.get("workers", {}))
    for value in (document["revision"], *vars(workers).values()):
        if type(value) is not int:
            raise TypeError(f"{value!r} is no whole number")
    return SchedulerAnswer(
        epoch,
        document["revision"],
        bool(document.get("more", False)),
        workers,
        tuple(JobStatus.from_json(job) for job in document["jobs"]),
    )


def preflight_from_json(document: Mapping[str, Any]) -> SeenPreflight:
    one = _known(SeenPreflight, document)
    notes = tuple(map(str, one.notes))
    errors = tuple(dict(error) for error in one.errors)
    error = None if one.error is None else str(one.error)
    return SeenPreflight(str(one.state), notes, errors, error, one.plan)


def document_of(content: bytes) -> Any:
    """The JSON of an answer, as a database keeps it; raises ValueError, RecursionError."""
    if _ESCAPED.search(content):
        # A rank's message may have them: that must not make the whole cluster unreadable.
        return _storable(json.loads(content.decode(), parse_constant=_no_number))
    document = from_json(content, allow_inf_nan=False)  # half the time of json, and stricter
    if _may_be_large(content):
        _check_numbers(document)
    return document


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
        return storable(value, len(value))
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
    elif kind is int and abs(value) > LARGEST:
        raise ValueError(f"{str(value)[:25]} is too large")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _known(kind: type[Value], document: Mapping[str, Any]) -> Value:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]  # of dataclasses alone
    return kind(**{name: value for name, value in document.items() if name in names})
