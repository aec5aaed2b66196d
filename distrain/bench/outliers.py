"""Ranks, nodes and links that are far from the others. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from distrain.bench.document import Bench, Measure
from distrain.bench.limits import own_seconds

OUTLIER_SHARE = 0.05
_NOISE = 3.0
"""Standard errors that a figure must be off, so that noise makes no outlier."""


@dataclass(frozen=True)
class Outlier:
    """A place whose figure is off the median of its group."""

    place: str  # the rank, node or link
    name: str  # the measure
    off: float  # the share of the median by which it is better (positive) or worse (negative)
    is_of_two: bool = False  # whether it is the worse of two, and `off` a share of the better


def find_outliers(bench: Bench, share: float = OUTLIER_SHARE) -> list[Outlier]:
    """All of a bench, the worst first."""
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
    """The worse of two places, if both have repetitions enough to tell."""
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
