"""Checks measures against the thresholds of a machine type, and finds outliers; no I/O."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, TypeAdapter

from distrain.diagnostics.bench.limits import own_seconds
from distrain.diagnostics.bench.results import Bench, BenchFinding, Measure, Positive, quantity
from distrain.errors import InputError, problems_in
from distrain.jobs.spec.load import parse_yaml

OUTLIER_SHARE = 0.05
_NOISE = 3.0
"""Nodes, GPUs and links are outliers only if they differ by more than this number of standard
errors."""


def find_outliers(bench: Bench, share: float = OUTLIER_SHARE) -> list[BenchFinding]:
    """Return the places that differ from others by more than the relative `share`, worst first.

    Each node (or its GPU), rank and link is compared with the median of all places of its kind with
    the same measure and size. Of two places, only the worse one can be an outlier: it is compared
    with the better one. The difference must also exceed `_NOISE` standard errors. With three or
    more places, an unknown standard error counts as 0; with two, there is then no outlier.

    If the largest step benchmark had three ranks or more, each rank's time in it, without the
    exchange, is compared with the median of the ranks, regardless of noise.
    """
    outliers = [*_of_measures(bench.measures, share), *_of_ranks(bench, share)]
    return sorted(outliers, key=lambda outlier: outlier.gain)


def _of_measures(measures: Sequence[Measure], share: float) -> Iterator[BenchFinding]:
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
                yield _outlier(measure.place, name, -off if measure.less_is_better else off)


def _worse_of_two(name: str, pair: list[Measure], share: float) -> Iterator[BenchFinding]:
    """Yield the worse of two places if they differ by more than `share` and by more than noise.

    Yields nothing if a standard error is unknown.
    """
    better, worse = sorted(pair, key=lambda m: m.median, reverse=not pair[0].less_is_better)
    if worse.standard_error is None or better.standard_error is None:
        return
    off = abs(worse.median - better.median) / better.median
    noise = _NOISE * math.hypot(worse.standard_error, better.standard_error) / better.median
    if off > max(share, noise):
        yield _outlier(worse.place, name, -off, "the other")


def _of_ranks(bench: Bench, share: float) -> Iterator[BenchFinding]:
    step = bench.largest_step
    if step is None or step.ranks < 3:
        return
    own = [own_seconds(of_rank) for of_rank in step.seconds]
    middle = median(own)
    for rank, seconds in enumerate(own):
        if middle > 0 and abs(seconds / middle - 1) > share:
            yield _outlier(step.place(rank), f"step on {step.ranks} ranks", 1 - seconds / middle)


def _outlier(place: str, name: str, gain: float, of: str = "the median") -> BenchFinding:
    comparative = "worse" if gain < 0 else "better"
    text = f"{place}: {name} {100 * abs(gain):.0f} % {comparative} than {of}"
    return BenchFinding(name, place, text, gain=gain)


Limits = Annotated[Mapping[str, Positive], BeforeValidator(lambda limits: limits or {})]


@dataclass(frozen=True)
class Thresholds:
    """The bounds of measures for a machine type, as in the YAML file of `distrain bench --accept`.

    `machine` describes the machine type; it is not evaluated.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    machine: str
    # by measure: the lower bound for every place at its best size
    least: Limits = field(default_factory=dict)
    # by measure: the upper bound for every place at its best size, for times
    most: Limits = field(default_factory=dict)
    outlier_share: Positive = OUTLIER_SHARE


_THRESHOLDS = TypeAdapter(Thresholds)


def parse_thresholds(text: str, where: str = "") -> Thresholds:
    """Parse the YAML text of a machine type's file, which `where` names in errors.

    Raises `InputError` if there is no bound, a bound is not a positive number, `machine` is
    missing, or a field is unknown.
    """
    try:
        thresholds = _THRESHOLDS.validate_python(parse_yaml(text))
        if not thresholds.least and not thresholds.most:
            raise ValueError("neither `least` nor `most` names a measure")
    except ValueError as error:
        raise InputError(
            f"the thresholds cannot be used: {problems_in(error)[0]}",
            where={"file": where} if where else {},
            hint="The file needs `machine: NAME`, and `least:` or `most:` with `MEASURE: NUMBER`.",
        ) from error
    return thresholds


def find_misses(measures: Sequence[Measure], thresholds: Thresholds) -> Iterator[BenchFinding]:
    """Yield a failure for each threshold and place (such as a node or a link) that misses it.

    A place that was measured with several sizes of messages, arrays or files misses a threshold if
    the best of its medians does. Also yields a failure for each threshold whose measure was not
    made.
    """
    for limits, is_most in ((thresholds.least, False), (thresholds.most, True)):
        for name, wanted in limits.items():
            named = sorted((m for m in measures if m.name == name), key=lambda m: m.median)
            # By place, the best size.
            best = {measure.place: measure for measure in (named[::-1] if is_most else named)}
            if not best:
                text = f"{name} was not measured, but the thresholds require {wanted:g}"
                yield BenchFinding(name, "", text, fails=True)
            for place, m in best.items():
                if m.median > wanted if is_most else m.median < wanted:
                    text = f"{name}{f', {place}' if place else ''}: {quantity(m.median, m.unit)}, "
                    text += f"but {quantity(wanted, m.unit)} is required"
                    yield BenchFinding(name, place, text, fails=True)
