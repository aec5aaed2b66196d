"""Checks measures against a machine type's thresholds, and finds outliers."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from distrain.diagnostics.bench.limits import own_seconds
from distrain.diagnostics.bench.results import Bench, Measure, text_of
from distrain.errors import InputError, problem_in
from distrain.jobs.spec.load import parse_yaml

OUTLIER_SHARE = 0.05
_NOISE = 3.0
"""Outliers deviate by more than this number of standard errors."""


@dataclass(frozen=True)
class Outlier:
    """A place whose measure deviates from the median of its group."""

    place: str  # the rank, node or link
    name: str  # the measure
    off: float  # relative deviation from the median: positive is better
    is_of_two: bool = False  # whether there are two places; `off` is relative to the better one


def find_outliers(bench: Bench, share: float = OUTLIER_SHARE) -> list[Outlier]:
    """Return the places that deviate by more than `share` and by more than noise, worst first."""
    outliers = [*_of_measures(bench.measures, share), *_of_ranks(bench, share)]
    return sorted(outliers, key=lambda outlier: outlier.off)


def _of_measures(measures: Iterable[Measure], share: float) -> Iterable[Outlier]:
    groups: dict[tuple[str, str, int], list[Measure]] = defaultdict(list)
    for measure in measures:
        kind = measure.place.partition(" ")[0]
        if kind in ("node", "rank", "link"):
            groups[measure.name, kind, measure.size_bytes].append(measure)
    for (name, _, _), group in groups.items():
        if len(group) == 2:
            yield from _worse_of_two(name, group, share)
            continue
        middle = median(m.median for m in group)
        for measure in group:
            off = measure.median / middle - 1
            noise = _NOISE * (measure.standard_error or 0.0) / middle
            if abs(off) > max(share, noise):
                yield Outlier(measure.place, name, -off if measure.less_is_better else off)


def _worse_of_two(name: str, pair: list[Measure], share: float) -> Iterable[Outlier]:
    """Yield the worse of two places if they differ by more than `share` and by more than noise.

    Yields nothing if a standard error is unknown.
    """
    low, high = sorted(pair, key=lambda measure: measure.median)
    worse, better = (high, low) if low.less_is_better else (low, high)
    if worse.standard_error is None or better.standard_error is None:
        return
    off = abs(worse.median - better.median) / better.median
    noise = _NOISE * math.hypot(worse.standard_error, better.standard_error) / better.median
    if off > max(share, noise):
        yield Outlier(worse.place, name, -off, is_of_two=True)


def _of_ranks(bench: Bench, share: float) -> Iterable[Outlier]:
    step = bench.largest_step
    if step is None or step.ranks < 3:
        return
    own = [own_seconds(of_rank) for of_rank in step.seconds]
    middle = median(own)
    for rank, seconds in enumerate(own):
        if middle > 0 and abs(seconds / middle - 1) > share:
            yield Outlier(step.place(rank), f"step on {step.ranks} ranks", 1 - seconds / middle)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limits = Annotated[Mapping[str, Positive], BeforeValidator(lambda limits: limits or {})]


@dataclass(frozen=True)
class Miss:
    """A measure that misses a threshold; `measured` is `None` if it was not measured."""

    name: str
    place: str
    measured: float | None
    wanted: float
    unit: str = ""


@dataclass(frozen=True)
class Thresholds:
    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    machine: str
    # by measure: the lower bound for every place at its best size
    least: Limits = field(default_factory=dict)
    # by measure: the upper bound for every place at its best size, for times
    most: Limits = field(default_factory=dict)
    outlier_share: Positive = OUTLIER_SHARE


_THRESHOLDS = TypeAdapter(Thresholds)


def load_thresholds(path: Path) -> Thresholds:
    """Read a machine type's file; raises `InputError` like `text_of` and `parse_thresholds`."""
    return parse_thresholds(text_of(path), str(path))


def parse_thresholds(text: str, where: str = "") -> Thresholds:
    """Parse a machine type's file; raise `InputError` if it is not one, or has unknown fields."""
    try:
        thresholds = _THRESHOLDS.validate_python(parse_yaml(text))
        if not thresholds.least and not thresholds.most:
            raise ValueError("neither `least` nor `most` names a measure")
    except ValueError as error:
        raise InputError(
            f"the thresholds cannot be used: {problem_in(error)}",
            where={"file": where} if where else {},
            hint="The file needs `machine: NAME`, and `least:` or `most:` with `MEASURE: NUMBER`.",
        ) from error
    return thresholds


def find_misses(measures: Sequence[Measure], thresholds: Thresholds) -> list[Miss]:
    """Return the measures that miss a threshold, and thresholds of which nothing was measured."""
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
