"""Compares two benches; a change counts only if it exceeds the measured spread. No I/O."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from distrain.diagnostics.bench.results import Bench, BenchFinding, Measure

_STANDARD_ERRORS = 4.0
_LEAST_SHARE = 0.01
"""Changes below this share are ignored, however small the spread."""

Pair = tuple[Measure, Measure]


def find_changes(earlier: Bench, now: Bench) -> list[BenchFinding]:
    """Return the significant changes of measures that both benches have, the greatest loss first.

    A change is significant if it exceeds `_STANDARD_ERRORS` standard errors of the difference, and
    the share `_LEAST_SHARE` of the earlier median. A finding of a measure that got worse has
    `fails` set. A measure with fewer than three repetitions in either bench is not compared.
    """
    pairs = common_measures(earlier, now)
    usual = _usual_errors([measure for pair in pairs for measure in pair])
    changes = (change for pair in pairs for change in _changes(pair, usual))
    return sorted(changes, key=lambda change: change.gain)


def common_measures(earlier: Bench, now: Bench) -> list[Pair]:
    """Return pairs (earlier, now) of the measures that both benches have.

    Returns [] if the modes or the devices of the benches differ.
    """
    if (earlier.mode, earlier.device) != (now.mode, now.device):
        return []
    before = {_key(measure): measure for measure in _figures(earlier)}
    return [(before[_key(m)], m) for m in _figures(now) if _key(m) in before]


def _figures(bench: Bench) -> list[Measure]:
    steps = [
        Measure(f"step.{s.scaling}", f"{s.ranks} ranks", "rows/s", s.rows_per_s)
        for s in bench.steps
    ]
    return [*bench.measures, *steps]


def _key(measure: Measure) -> tuple[str, str, str, int]:
    return measure.name, measure.place, measure.unit, measure.size_bytes


def _usual_errors(measures: Sequence[Measure]) -> Mapping[tuple[str, int], float]:
    """Return the usual relative standard error of each measure, by its name and size.

    It is the median over the measured places (nodes, links, ...). `find_changes` assumes at least
    this error for each place. The few repetitions of a place may agree by chance; without the
    minimum, some of hundreds of links would seem changed.
    """
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for measure in measures:
        if measure.standard_error is not None:
            group = errors[measure.name, measure.size_bytes]
            group.append(measure.standard_error / measure.median)
    return {group: median(values) for group, values in errors.items()}


def _changes(pair: Pair, usual: Mapping[tuple[str, int], float]) -> Iterator[BenchFinding]:
    old, new = pair
    errors = old.standard_error, new.standard_error
    if errors[0] is None or errors[1] is None:
        return
    least = usual[new.name, new.size_bytes]
    noise = math.hypot(max(errors[0] / old.median, least), max(errors[1] / new.median, least))
    share = new.median / old.median - 1
    gain = -share if new.less_is_better else share
    if abs(gain) > max(_STANDARD_ERRORS * noise, _LEAST_SHARE):
        at = f", {new.place}" if new.place else ""
        size = f" of {new.size_bytes} bytes" if new.size_bytes else ""
        text = f"{new.name}{size}{at}: {100 * abs(share):.0f} % "
        text += "better than before" if gain > 0 else "worse than before"
        yield BenchFinding(new.name, new.place, text, fails=gain < 0, gain=gain)
