"""Summarises a bench in lines for a terminal, the verdict first; no I/O."""

from collections.abc import Sequence
from statistics import median

from distrain.diagnostics.bench.comparison import FigureChange
from distrain.diagnostics.bench.limits import StepLimits
from distrain.diagnostics.bench.results import Bench, Measure, Scaling
from distrain.diagnostics.bench.thresholds import Miss, Outlier
from distrain.diagnostics.bench.verdict import BenchVerdict
from distrain.formatting import first_of

_MOST = 10
_SCALINGS: tuple[Scaling, ...] = ("weak", "strong")


def summary_lines(bench: Bench, verdict: BenchVerdict) -> list[str]:
    """Return the lines of the summary; the first line is the verdict."""
    lists = (
        [_miss_line(miss) for miss in verdict.misses],
        [_outlier_line(outlier) for outlier in verdict.outliers],
        list(verdict.troubles),
        [_change_line(c) for c in verdict.changes if c.judgement in ("better", "worse")],
        list(verdict.remarks),
    )
    return [
        headline(verdict),
        *(line for lines in lists for line in first_of(lines, _MOST, "... and {} more of these")),
        *([limits_line(verdict.limits)] if verdict.limits and not verdict.passed else []),
        *scaling_lines(bench),
        *measure_lines(bench),
        *(f"not measured: {text}" for text in bench.left_out),
    ]


def headline(verdict: BenchVerdict) -> str:
    """Return `PASS`, or `FAIL` with the first reason."""
    reasons = [_miss_line(miss) for miss in verdict.misses]
    if verdict.accepting:
        reasons += [_outlier_line(outlier) for outlier in verdict.slow]
        reasons += verdict.troubles
    reasons += [_change_line(change) for change in verdict.worse]
    if verdict.has_nothing_common:
        reasons.append("the earlier bench has no common measure: another mode, device or nodes")
    if not verdict.passed:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"FAIL: {reasons[0]}{more}"
    return f"PASS: {limits_line(verdict.limits)}" if verdict.limits else "PASS"


def limits_line(limits: StepLimits) -> str:
    """Return a line on the bottleneck, and on the next bottleneck with the head-room."""
    line = f"on {_ranks(limits.ranks)} the bottleneck is {_named(limits.first.resource)}"
    line += f", {1e3 * limits.first.seconds:.3g} ms of a step"
    if limits.next is None:
        return line
    return (
        f"{line}; the next is {_named(limits.next.resource)}, "
        f"{1e3 * limits.next.seconds:.3g} ms (head-room {limits.headroom:.3g}x)"
    )


def scaling_lines(bench: Bench) -> list[str]:
    """Return lines on rows/s and efficiency, by scaling and ranks.

    The efficiency is relative to the step on the fewest ranks.
    """
    lines = []
    for scaling in _SCALINGS:
        steps = sorted((s for s in bench.steps if s.scaling == scaling), key=lambda s: s.ranks)
        for step in steps:
            efficiency = step.rate / step.ranks / (steps[0].rate / steps[0].ranks)
            lines.append(
                f"step, {scaling}, {_ranks(step.ranks)}: {step.rate:,.0f} rows/s, "
                f"{100 * efficiency:.0f} % of {steps[0].ranks}"
            )
    return lines


def measure_lines(bench: Bench) -> list[str]:
    """Return a line for each measure: the median over places, and the worst place.

    Each place counts with its best size.
    """
    best: dict[str, dict[str, Measure]] = {}
    for measure in bench.measures:
        places = best.setdefault(measure.name, {})
        other = places.setdefault(measure.place, measure)
        if (measure.median < other.median) == measure.less_is_better:
            places[measure.place] = measure
    return [_measure_line(name, list(places.values())) for name, places in best.items()]


def _measure_line(name: str, measures: Sequence[Measure]) -> str:
    unit = measures[0].unit
    line = f"{name}: {quantity(median(m.median for m in measures), unit)}"
    if len(measures) == 1:
        return f"{line}, {measures[0].place}" if measures[0].place else line
    by_rate = sorted(measures, key=lambda m: m.median, reverse=measures[0].less_is_better)
    worst = by_rate[0]
    return f"{line} on the median; the worst of {len(measures)} is {worst.place}, " + quantity(
        worst.median, unit
    )


def quantity(value: float, unit: str) -> str:
    """Format a value with its unit.

    >>> quantity(21e9, "bytes/s"), quantity(0.002, "s"), quantity(1234567, "rows/s")
    ('21 GB/s', '2 ms', '1,234,567 rows/s')
    >>> quantity(11.8e6, "bytes/s")
    '11.8 MB/s'
    """
    if unit == "flop/s":
        return f"{value / 1e12:.3g} TFLOP/s"
    if unit == "bytes/s":
        return f"{value / 1e9:.3g} GB/s" if value >= 1e8 else f"{value / 1e6:.3g} MB/s"
    return f"{1e3 * value:.3g} ms" if unit == "s" else f"{value:,.0f} {unit}"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _miss_line(miss: Miss) -> str:
    if miss.measured is None:
        return f"{miss.name} was not measured, but the thresholds require {miss.wanted:g}"
    at = f", {miss.place}" if miss.place else ""
    return (
        f"{miss.name}{at}: {quantity(miss.measured, miss.unit)}, "
        f"but {quantity(miss.wanted, miss.unit)} is required"
    )


def _outlier_line(outlier: Outlier) -> str:
    comparative = "worse" if outlier.off < 0 else "better"
    of = "the other" if outlier.is_of_two else "the median"
    return f"{outlier.place}: {outlier.name} {100 * abs(outlier.off):.0f} % {comparative} than {of}"


def _change_line(change: FigureChange) -> str:
    at = f", {change.place}" if change.place else ""
    size = f" of {change.size_bytes} bytes" if change.size_bytes else ""
    return (
        f"{change.name}{size}{at}: {100 * abs(change.share):.0f} % {change.judgement} than before"
    )


def _named(resource: str) -> str:
    return resource if resource == "uneven ranks" else f"the {resource}"
