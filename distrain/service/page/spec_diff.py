"""The differences between specs, field by field. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrain.spec import flat

_ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """A field that differs, and its value in each spec; `-` where one lacks it."""

    field: str
    values: tuple[str, ...]


def differences(specs: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields that differ, by their dotted names.

    >>> differences([{"train": {"epochs": 1, "seed": 0}}, {"train": {"epochs": 2, "seed": 0}}])
    [Difference(field='train.epochs', values=('1', '2'))]
    """
    values = [{name: json.dumps(value) for name, value in flat(spec).items()} for spec in specs]
    names = dict.fromkeys(name for one in values for name in one)
    rows = [Difference(n, tuple(one.get(n, _ABSENT) for one in values)) for n in names]
    return [row for row in rows if len(set(row.values)) > 1]
