"""The bodies of requests and answers, as pydantic models.

Requests refuse unknown keys. Answers may grow fields; times are RFC 3339 in UTC.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MOST_DEPTH = 48


class Request(BaseModel):
    """A request's body: closed, and of values that any database and JSON reader takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        problem = _unusable(value)
        if problem:
            raise ValueError(problem)
        return value


class Answer(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(frozen=True)


def _unusable(value: Any) -> str | None:
    """What no database or JSON reader would take of JSON values, if anything."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str) and not _is_clean(item):
                return "a text has a NUL or half a surrogate pair"
            if isinstance(item, float) and not math.isfinite(item):
                return "a number is not finite"
            if isinstance(item, Mapping):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
        level = inner
    return f"the values are nested deeper than {_MOST_DEPTH} levels" if level else None


def _is_clean(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def utc(at_s: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC, with microseconds.

    >>> utc(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Me(Answer):
    """Who the caller is."""

    user: str
    is_admin: bool
    roles: dict[str, str] = Field(description="By project.")
    scopes: list[str] = Field(description="What the token may be used for.")
    projects: list[str] = Field(description="Those in which the caller has a role.")
