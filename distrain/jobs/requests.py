"""The base of all request bodies: values that every database and JSON reader accepts."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from distrain.jobs.status import is_storable

_MOST_DEPTH = 48


class PlainBody(BaseModel):
    """The body of a request.

    Validation fails for texts with NUL or half a surrogate pair, for NaN and infinite numbers, and
    for values nested deeper than `_MOST_DEPTH` levels.
    """

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        problem = _unusable(value)
        if problem:
            raise ValueError(problem)
        return value


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values at each depth of a JSON value as a list, the outermost first.

    The first list is `[value]`. Each further list has the keys and values of all mappings, and the
    items of all lists, in the list before it.
    """
    level = [value]
    while level:
        yield level
        inner: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
        level = inner


def _unusable(value: Any) -> str | None:
    """Return why a database or JSON reader would refuse the values; `None` if none would."""
    for depth, level in enumerate(levels(value)):
        if depth == _MOST_DEPTH:
            return f"the values are nested deeper than {_MOST_DEPTH} levels"
        if any(isinstance(item, str) and not is_storable(item) for item in level):
            return "a text has a NUL or half a surrogate pair"
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            return "a number is not finite"
    return None
