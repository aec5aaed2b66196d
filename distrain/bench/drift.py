"""What a soak saw change: figures that drift, and rounds that fell out of line. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from distrain.bench.document import Series

DRIFT_SHARE = 0.05
"""A loss below this share of the median is no drift."""

_SURE = 4.0
"""Standard deviations of Kendall's S by which a drift is no chance, with hundreds of figures."""

_LEAST_ROUNDS = 8
_MOST_ROUNDS = 300
"""Of more, every n-th is compared with the others: pairs grow with the square."""

_SLOW_SHARE = 0.2
_SLOW_SPREADS = 6.0
_NORMAL_MAD = 1.4826
"""A normal law's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class Drift:
    """A figure that went one way during a soak.

    Attributes:
        share: What it gained (positive) or lost from the first round to the last, of its median,
            by the median slope between rounds.
        span_s: The time between these two rounds.
    """

    name: str
    place: str
    share: float
    span_s: float


@dataclass(frozen=True)
class SlowRounds:
    """Rounds of a soak in which a figure was far worse than in the others.

    Attributes:
        off: By what share of the median the worst of them is off; below 0.
        worst_s: When that was, in seconds from the soak's start.
        count: How many there were.
        rounds: Of how many.
    """

    name: str
    place: str
    off: float
    worst_s: float
    count: int
    rounds: int


def find_drifts(series: Iterable[Series], share: float = DRIFT_SHARE) -> list[Drift]:
    """Figures that drift, the greatest loss first; with fewer than 8 rounds there is none."""
    found = [drift for one in series if (drift := _drift(one)) and abs(drift.share) > share]
    return sorted(found, key=lambda drift: drift.share)


def find_slow_rounds(series: Iterable[Series]) -> list[SlowRounds]:
    """Figures with rounds that are 20 % worse than their median, and more than they spread."""
    found = [slow for one in series if (slow := _slow(one))]
    return sorted(found, key=lambda slow: slow.off)


def _drift(series: Series) -> Drift | None:
    if not series.is_judged or len(series.values) < _LEAST_ROUNDS:
        return None
    times, values = _thinned(series.at_s), _thinned(series.values)
    pairs = list(combinations(zip(times, values, strict=True), 2))
    sign = sum((b > a) - (b < a) for (_, a), (_, b) in pairs)
    count = len(values)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if abs(sign) < _certain(count, deviation):
        return None
    slope = median((b - a) / (t - s) for (s, a), (t, b) in pairs)
    span_s = times[-1] - times[0]
    share = slope * span_s / median(values)
    return Drift(series.name, series.place, -share if series.less_is_better else share, span_s)


def _certain(count: int, deviation: float) -> float:
    """What Kendall's S must reach; of few rounds nearly all pairs must agree."""
    return min(_SURE * deviation, 0.9 * count * (count - 1) / 2)


def _slow(series: Series) -> SlowRounds | None:
    if not series.is_judged or len(series.values) < _LEAST_ROUNDS:
        return None
    middle = median(series.values)
    spread = _NORMAL_MAD * median(abs(value - middle) for value in series.values)
    sign = -1.0 if series.less_is_better else 1.0
    limit = max(_SLOW_SHARE * middle, _SLOW_SPREADS * spread)
    offs = [sign * (value - middle) for value in series.values]
    worst = min(offs)
    if worst >= -limit:
        return None
    return SlowRounds(
        series.name,
        series.place,
        worst / middle,
        series.at_s[offs.index(worst)],
        sum(off < -limit for off in offs),
        len(offs),
    )


def _thinned(values: Sequence[float]) -> Sequence[float]:
    return values[:: 1 + (len(values) - 1) // _MOST_ROUNDS]
