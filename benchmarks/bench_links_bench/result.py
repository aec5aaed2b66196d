"""Compares the faults that a bench reported with those that were planted. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from distrain.diagnostics.bench.limits import find_limits
from distrain.diagnostics.bench.results import Bench, Measure
from distrain.diagnostics.bench.thresholds import find_outliers

WITHIN = 0.15
"""Largest accepted distance of an all-to-all from the links' cap, as a share of the cap."""
APART = 2.0
"""How many times faster than between nodes an all-to-all must be within a node."""


@dataclass(frozen=True)
class Finding:
    """One fault that a bench should report.

    Attributes:
        scene: The name of the set-up.
        planted: The planted fault, in words.
        found: What the bench reported.
        met: Whether the report names the planted fault.
        figures: The measured numbers that the report is based on.
    """

    scene: str
    planted: str
    found: str
    met: bool
    figures: dict[str, Any]


def of_collectives(scene: str, measures: Sequence[Measure], mbit: int) -> list[Finding]:
    """Compare all-to-alls between nodes with the cap and with all-to-alls within nodes."""
    cap = mbit * 1e6 / 8
    between = _values(measures, "all_to_all.off_node")
    off = median(between) / cap - 1
    told = [
        Finding(
            scene,
            f"all-to-all at {mbit} Mbit/s",
            f"{median(between) * 8 / 1e6:.0f} Mbit/s ({100 * off:+.0f} %)",
            abs(off) <= WITHIN,
            {"of_cap": [round(value / cap, 3) for value in between]},
        )
    ]
    inside = _values(measures, "all_to_all.on_node")
    if inside:
        times = median(inside) / median(between)
        told.append(
            Finding(
                scene,
                f"nodes are {APART:g} times faster inside, or more",
                f"{times:.1f} times",
                times >= APART,
                {"on_node_bytes_per_s": [round(value) for value in inside]},
            )
        )
    return told


def of_outliers(scene: str, bench: Bench, place: str, name: str) -> Finding:
    """Compare the worst outlier with the planted fault: the measure `name` is low at `place`.

    The finding's `figures` list all outliers.
    """
    slow = [outlier for outlier in find_outliers(bench) if outlier.gain < 0]
    named = [f"{o.place}: {o.name} {-100 * o.gain:.0f} % worse" for o in slow]
    worst = slow[0] if slow else None
    met = worst is not None and (worst.place, worst.name) == (place, name)
    said = named[0] if named else "no outlier"
    return Finding(scene, f"{place} is slow", said, met, {"all_outliers": named})


def of_limits(scene: str, bench: Bench, wanted: str) -> Finding:
    """Compare the resource that limits a step first with `wanted`, the planted one."""
    ms = {resource: round(1e3 * s, 1) for resource, s in find_limits(bench).items()}
    first = next(iter(ms), "none")
    said = ", ".join(f"{resource} {of:g} ms" for resource, of in list(ms.items())[:2])
    return Finding(scene, f"the {wanted} is the first limit", said, first == wanted, {"ms": ms})


def table(findings: Iterable[Finding]) -> list[str]:
    """Return the findings as lines of a table."""
    head = f"{'':34}{'planted':42}{'found':52}"
    return [head.rstrip()] + [
        f"{one.scene:34}{one.planted:42}{one.found:52}{'' if one.met else 'missed'}".rstrip()
        for one in findings
    ]


def document(findings: Sequence[Finding], **about: Any) -> dict[str, Any]:
    """Return the JSON document for the last line."""
    names = {f"{one.scene}: {one.planted}": one for one in findings}
    return {
        "benchmark": "bench_links",
        **about,
        "figures": {name: {"found": one.found, **one.figures} for name, one in names.items()},
        "goals": {"all_to_all_within": WITHIN, "on_node_times_off_node": APART},
        "met": {name: one.met for name, one in names.items()},
    }


def _values(measures: Iterable[Measure], name: str) -> list[float]:
    """Return the repetitions at the largest message size, of all places together."""
    chosen = [measure for measure in measures if measure.name == name]
    most = max((measure.size_bytes for measure in chosen), default=0)
    return [value for m in chosen if m.size_bytes == most for value in m.values]
