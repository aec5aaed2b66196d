"""What a type of machine must reach, from a YAML file. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from distrain.bench.document import Measure
from distrain.bench.outliers import OUTLIER_SHARE
from distrain.errors import InputError

_FIELDS = {"machine", "outlier_share", "least", "most"}


@dataclass(frozen=True)
class Miss:
    """A figure that misses a threshold; `found` is `None` if it was never measured."""

    name: str
    place: str
    found: float | None
    wanted: float
    unit: str = ""


@dataclass(frozen=True)
class Thresholds:
    """Limits of a machine type.

    Attributes:
        least: By measure, the least that every place must reach at its best size.
        most: By measure, the most that any place may have at its best size, for times.
    """

    machine: str
    least: Mapping[str, float]
    most: Mapping[str, float]
    outlier_share: float = OUTLIER_SHARE


def parse_thresholds(text: str, where: str = "") -> Thresholds:
    """Read a machine type's file; `InputError` for another file or an unknown field."""
    try:
        values = yaml.safe_load(text)
        if unknown := set(values) - _FIELDS:
            raise ValueError(f"unknown field {sorted(unknown)[0]!r}")
        share = _positive("outlier_share", values.get("outlier_share", OUTLIER_SHARE))
        least, most = (_limits(values.get(side) or {}) for side in ("least", "most"))
        if not least and not most:
            raise ValueError("neither `least` nor `most` names a measure")
        return Thresholds(str(values["machine"]), least, most, share)
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the thresholds cannot be used: {type(error).__name__}: {error}",
            where={"file": where} if where else {},
            hint="It wants `machine: NAME`, and `least:` or `most:` with `MEASURE: NUMBER`.",
        ) from error


def find_misses(measures: Sequence[Measure], thresholds: Thresholds) -> list[Miss]:
    """The figures that miss a threshold, and those that were not measured."""
    sides = ((thresholds.least, False), (thresholds.most, True))
    return [
        miss
        for limits, is_most in sides
        for name, wanted in limits.items()
        for miss in _misses(name, wanted, is_most, measures)
    ]


def _misses(name: str, wanted: float, is_most: bool, measures: Sequence[Measure]) -> list[Miss]:
    best: dict[str, Measure] = {}
    for measure in (m for m in measures if m.name == name):
        known = best.setdefault(measure.place, measure)
        if (measure.median < known.median) if is_most else (measure.median > known.median):
            best[measure.place] = measure
    if not best:
        return [Miss(name, "", None, wanted)]
    return [
        Miss(name, place, m.median, wanted, m.unit)
        for place, m in best.items()
        if (m.median > wanted if is_most else m.median < wanted)
    ]


def _limits(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _positive(str(name), value) for name, value in values.items()}


def _positive(name: str, value: Any) -> float:
    # YAML 1.1 reads 45e9 as a text.
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} is a positive number, not {value!r}")
    return number
