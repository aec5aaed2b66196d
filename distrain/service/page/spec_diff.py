"""What differs between two specs, field by field. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """A field with another value in each of two specs, as texts; `-` where one lacks it."""

    field: str
    here: str
    there: str


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Difference]:
    """The fields that differ, by their dotted names.

    >>> differences({"train": {"epochs": 1, "seed": 0}}, {"train": {"epochs": 2, "seed": 0}})
    [Difference(field='train.epochs', here='1', there='2')]
    """
    ours, theirs = dict(_flat(here)), dict(_flat(there))
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        Difference(name, ours.get(name, _ABSENT), theirs.get(name, _ABSENT))
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and (value or not name):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(value)
