"""Compares two benches; a change counts only if it exceeds the measured spread. No I/O."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from distrain.diagnostics.bench.results import Bench, Measure

Judgement = Literal["better", "worse", "same", "unknown"]

_STANDARD_ERRORS = 4.0
_LEAST_SHARE = 0.01
"""Changes below this share are ignored, however small the spread."""


@dataclass(frozen=True)
class FigureChange:
    """The change of a measure; `share` is its relative gain (negative for a loss)."""

    name: str
    place: str
    size_bytes: int
    share: float
    judgement: Judgement


def find_changes(earlier: Bench, now: Bench) -> list[FigureChange]:
    """Return the changes of measures that both benches have, the greatest loss first.

    A measure with fewer than three repetitions in a bench is judged `unknown`. Benches with
    different modes or devices are not comparable: the list is empty.
    """
    if (earlier.mode, earlier.device) != (now.mode, now.device):
        return []
    before = {_key(measure): measure for measure in _figures(earlier)}
    after = _figures(now)
    usual = _usual_errors([*before.values(), *after])
    pairs = [(before[_key(m)], m) for m in after if _key(m) in before]
    changes = [_change(old, new, usual.get(_group(new), 0.0)) for old, new in pairs]
    return sorted(changes, key=lambda change: change.share)


def _figures(bench: Bench) -> list[Measure]:
    steps = [
        Measure(f"step.{s.scaling}", f"{s.ranks} ranks", "rows/s", s.rows_per_s)
        for s in bench.steps
    ]
    return [*bench.measures, *steps]


def _key(measure: Measure) -> tuple[str, str, str, int]:
    return measure.name, measure.place, measure.unit, measure.size_bytes


def _group(measure: Measure) -> tuple[str, int]:
    return measure.name, measure.size_bytes


def _usual_errors(measures: Sequence[Measure]) -> Mapping[tuple[str, int], float]:
    """Return the median of the places' relative standard errors, by measure.

    It is the least error that is assumed for each place. The few repetitions of a place may agree
    by chance; without this minimum, some of hundreds of links would seem changed.
    """
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for measure in measures:
        if measure.standard_error is not None:
            errors[_group(measure)].append(measure.standard_error / measure.median)
    return {group: median(values) for group, values in errors.items()}


def _change(old: Measure, new: Measure, usual: float) -> FigureChange:
    share = new.median / old.median - 1
    gained = -share if new.less_is_better else share
    return FigureChange(
        new.name, new.place, new.size_bytes, gained, _judge(old, new, gained, usual)
    )


def _judge(old: Measure, new: Measure, gained: float, usual: float) -> Judgement:
    errors = old.standard_error, new.standard_error
    if errors[0] is None or errors[1] is None:
        return "unknown"
    shares = max(errors[0] / old.median, usual), max(errors[1] / new.median, usual)
    noise = _STANDARD_ERRORS * math.hypot(*shares)
    if abs(gained) <= max(noise, _LEAST_SHARE):
        return "same"
    return "better" if gained > 0 else "worse"
