"""What a bench said of a planted fault, against what was planted. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from distrain.diagnostics.bench.document import Bench, Measure
from distrain.diagnostics.bench.limits import find_limits
from distrain.diagnostics.bench.thresholds import find_outliers

WITHIN = 0.15
"""How far an all-to-all may be from the links' cap, as a share of it."""
APART = 2.0
"""How many times faster than the links a node must be inside."""


@dataclass(frozen=True)
class Finding:
    """One thing that a bench had to find.

    Attributes:
        scene: What was set up.
        planted: What is to be found.
        found: What the bench said.
        met: Whether that is it.
        figures: Numbers behind it.
    """

    scene: str
    planted: str
    found: str
    met: bool
    figures: dict[str, Any]


def of_collectives(scene: str, measures: Sequence[Measure], mbit: int) -> list[Finding]:
    """All-to-alls between nodes against the cap, and on nodes against those between them."""
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
    """The worst outlier against a planted one; what else is odd is told, too."""
    slow = [outlier for outlier in find_outliers(bench) if outlier.off < 0]
    named = [f"{o.place}: {o.name} {-100 * o.off:.0f} % worse" for o in slow]
    worst = slow[0] if slow else None
    met = worst is not None and (worst.place, worst.name) == (place, name)
    said = named[0] if named else "no outlier"
    return Finding(scene, f"{place} is slow", said, met, {"all_outliers": named})


def of_limits(scene: str, bench: Bench, wanted: str) -> Finding:
    """The first limit of a step against the one that was set up."""
    limits = find_limits(bench)
    ms = (
        {limit.resource: round(1e3 * limit.seconds, 1) for limit in limits.resources}
        if limits
        else {}
    )
    first = next(iter(ms), "none")
    said = ", ".join(f"{resource} {of:g} ms" for resource, of in list(ms.items())[:2])
    return Finding(scene, f"the {wanted} is the first limit", said, first == wanted, {"ms": ms})


def table(findings: Iterable[Finding]) -> list[str]:
    """Lines for people."""
    head = f"{'':34}{'planted':42}{'found':52}"
    return [head.rstrip()] + [
        f"{one.scene:34}{one.planted:42}{one.found:52}{'' if one.met else 'missed'}".rstrip()
        for one in findings
    ]


def document(findings: Sequence[Finding], **about: Any) -> dict[str, Any]:
    """The last line."""
    names = {f"{one.scene}: {one.planted}": one for one in findings}
    return {
        "benchmark": "bench_links",
        **about,
        "figures": {name: {"found": one.found, **one.figures} for name, one in names.items()},
        "goals": {"all_to_all_within": WITHIN, "on_node_times_off_node": APART},
        "met": {name: one.met for name, one in names.items()},
    }


def _values(measures: Iterable[Measure], name: str) -> list[float]:
    """Repetitions of the largest size, of all places together."""
    chosen = [measure for measure in measures if measure.name == name]
    most = max((measure.size_bytes for measure in chosen), default=0)
    return [value for m in chosen if m.size_bytes == most for value in m.values]
