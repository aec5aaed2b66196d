"""What a type of machine must reach, from a YAML file. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from distrain.bench.document import Measure, text_of
from distrain.bench.outliers import OUTLIER_SHARE
from distrain.errors import InputError, problem_in

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limits = Annotated[Mapping[str, Positive], BeforeValidator(lambda limits: limits or {})]


@dataclass(frozen=True)
class Miss:
    """A figure that misses a threshold; `measured` is `None` if it was never measured."""

    name: str
    place: str
    measured: float | None
    wanted: float
    unit: str = ""


@dataclass(frozen=True)
class Thresholds:
    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    machine: str
    # by measure, the least that every place must reach at its best size
    least: Limits = field(default_factory=dict)
    # by measure, the most that any place may have at its best size, for times
    most: Limits = field(default_factory=dict)
    outlier_share: Positive = OUTLIER_SHARE


_THRESHOLDS = TypeAdapter(Thresholds)


def load_thresholds(path: Path) -> Thresholds:
    """Read a machine type's file; errors as of `parse_thresholds`."""
    return parse_thresholds(text_of(path), str(path))


def parse_thresholds(text: str, where: str = "") -> Thresholds:
    """Read a machine type's file; `InputError` for another file or an unknown field."""
    try:
        thresholds = _THRESHOLDS.validate_python(yaml.safe_load(text))
        if not thresholds.least and not thresholds.most:
            raise ValueError("neither `least` nor `most` names a measure")
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(
            f"the thresholds cannot be used: {problem_in(error)}",
            where={"file": where} if where else {},
            hint="It wants `machine: NAME`, and `least:` or `most:` with `MEASURE: NUMBER`.",
        ) from error
    return thresholds


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
        other = best.setdefault(measure.place, measure)
        if (measure.median < other.median) if is_most else (measure.median > other.median):
            best[measure.place] = measure
    if not best:
        return [Miss(name, "", None, wanted)]
    return [
        Miss(name, place, m.median, wanted, m.unit)
        for place, m in best.items()
        if (m.median > wanted if is_most else m.median < wanted)
    ]
