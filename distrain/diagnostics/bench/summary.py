"""Summarises a bench in lines for a terminal, the verdict first; no I/O."""

from collections.abc import Sequence
from statistics import median

from distrain.diagnostics.bench.results import Bench, Measure, Scaling, quantity
from distrain.diagnostics.bench.verdict import BenchVerdict
from distrain.formatting import limit_lines

_MOST = 10
_SCALINGS: tuple[Scaling, ...] = ("weak", "strong")


def summary_lines(bench: Bench, verdict: BenchVerdict) -> list[str]:
    """Return the lines of the summary; the first line is the verdict."""
    lists = ([one.text for one in found] for found in verdict.findings.values())
    return [
        headline(bench, verdict),
        *(
            line
            for lines in lists
            for line in limit_lines(lines, _MOST, "... and {} more of these")
        ),
        *([limits_line(bench, verdict)] if verdict.limits and not verdict.passed else []),
        *scaling_lines(bench),
        *measure_lines(bench),
        *(f"not measured: {text}" for text in bench.left_out),
    ]


def headline(bench: Bench, verdict: BenchVerdict) -> str:
    """Return `PASS` with the bottleneck, or `FAIL` with the first reason."""
    if failures := verdict.failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        return f"FAIL: {failures[0].text}{more}"
    return f"PASS: {limits_line(bench, verdict)}" if verdict.limits else "PASS"


def limits_line(bench: Bench, verdict: BenchVerdict) -> str:
    """Return a line on the bottleneck, and on the resource that takes the second most time.

    The head-room is the ratio of their times.
    """
    assert bench.largest_step is not None
    (first, first_s), *others = verdict.limits.items()
    line = f"on {_ranks(bench.largest_step.ranks)} the bottleneck is {_named(first)}"
    line += f", {1e3 * first_s:.3g} ms of a step"
    for resource, next_s in others[:1]:
        line += f"; the next is {_named(resource)}, {1e3 * next_s:.3g} ms "
        line += f"(head-room {first_s / next_s:.3g}x)"
    return line


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

    A place is a node, a GPU or a link. If it was measured with several message or file sizes, only
    its best median counts.
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


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _named(resource: str) -> str:
    return resource if resource == "uneven ranks" else f"the {resource}"
