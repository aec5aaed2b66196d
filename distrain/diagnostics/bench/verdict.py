"""Evaluates a bench, including faults of GPUs and differences between nodes; no I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from distrain.diagnostics.bench.comparison import FigureChange, find_changes
from distrain.diagnostics.bench.limits import StepLimits, find_limits
from distrain.diagnostics.bench.results import Bench, Measure
from distrain.diagnostics.bench.thresholds import (
    OUTLIER_SHARE,
    Miss,
    Outlier,
    Thresholds,
    find_misses,
    find_outliers,
)

_SLOWER = 0.95
"""A rate is slower than another rate if it is below this share of the other."""


def find_troubles(bench: Bench) -> list[str]:
    """Return messages on faulty GPUs, and on differences between nodes."""
    return [*_of_gpus(bench), *_of_products(bench), *_differences(bench)]


def find_remarks(bench: Bench) -> list[str]:
    """Return messages on nodes where two loader threads are slower than one; no failures."""
    rates = {(m.name, m.place): m.median for m in bench.measures}
    return [
        f"{place}: two threads of a loader are slower than one, {rate:,.0f} of "
        f"{rates['loader.threads_1', place]:,.0f} rows/s"
        for (name, place), rate in rates.items()
        if name == "loader.threads_2"
        and rate < _SLOWER * rates.get(("loader.threads_1", place), 0.0)
    ]


def _of_gpus(bench: Bench) -> Iterator[str]:
    for node in bench.inventory:
        for index, gpu in enumerate(node.get("gpu_facts", ())):
            for text in _of_gpu(gpu):
                yield f"node {node['node']} gpu {index}: {text}"


def _of_gpu(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu.get("uncorrected_errors"):
        yield f"{gpu['uncorrected_errors']} uncorrected memory errors since its driver was loaded"
    if gpu.get("remap_failed"):
        yield "a faulty row of its memory could not be remapped"
    elif gpu.get("remap_pending"):
        yield "a faulty row of its memory will be remapped at its next reset"
    if gpu.get("throttled_by"):
        yield f"its clocks are throttled under load: {', '.join(gpu['throttled_by'])}"
    for now, most, words in zip(
        gpu.get("pcie", ()), gpu.get("pcie_most", ()), ("generation", "lanes"), strict=False
    ):
        if now and most and now < most:
            yield f"PCIe {words}: {now} of {most}, under load"


def _of_products(bench: Bench) -> Iterator[str]:
    """Yield messages on GPUs whose matrix products get slower in the second half."""
    for one in bench.measures:
        if one.name == "gpu.product" and len(one.values) > 3:
            begun, end = (median(half) for half in _halves(one))
            if end < _SLOWER * begun:
                yield f"{one.place}: products get {100 * (1 - end / begun):.0f} % slower under load"


def _halves(one: Measure) -> tuple[tuple[float, ...], tuple[float, ...]]:
    middle = len(one.values) // 2
    return one.values[:middle], one.values[middle:]


def _differences(bench: Bench) -> Iterator[str]:
    for words, key in (("driver", "driver"), ("ECC mode", "ecc"), ("type", "name")):
        values = {
            str(gpu[key]): str(node["node"])
            for node in bench.inventory
            for gpu in node.get("gpu_facts", ())
            if gpu.get(key) is not None
        }
        if len(values) > 1:
            yield f"GPUs differ in {words}: " + ", ".join(f"{v} on {n}" for v, n in values.items())
    counts = {len(node.get("gpus", ())): str(node.get("node")) for node in bench.inventory}
    if len(counts) > 1:
        yield "nodes differ in GPUs: " + ", ".join(f"{c} on {n}" for c, n in counts.items())


@dataclass(frozen=True)
class BenchVerdict:
    limits: StepLimits | None  # `None` without steps
    outliers: tuple[Outlier, ...]
    misses: tuple[Miss, ...]
    changes: tuple[FigureChange, ...]
    troubles: tuple[str, ...] = ()  # faults of GPUs and differences between nodes
    remarks: tuple[str, ...] = ()  # not failures
    accepting: bool = False  # whether thresholds of a machine type were given
    comparing: bool = False  # whether an earlier bench was given

    @property
    def slow(self) -> tuple[Outlier, ...]:
        """Outliers on the worse side; the other outliers are better than the median."""
        return tuple(outlier for outlier in self.outliers if outlier.off < 0)

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """Measures that are significantly worse than in the earlier bench."""
        return tuple(change for change in self.changes if change.judgement == "worse")

    @property
    def passed(self) -> bool:
        """Whether nothing failed.

        Failures are missed thresholds, measures that are worse than before, and an earlier bench
        without a common measure. With thresholds, slow outliers and troubles are failures, too.
        """
        is_bad = self.accepting and bool(self.slow or self.troubles)
        return not (self.misses or self.worse or is_bad or self.has_nothing_common)

    @property
    def has_nothing_common(self) -> bool:
        """Whether an earlier bench was given but has no measure in common with this one."""
        return self.comparing and not self.changes


def judge(
    bench: Bench, thresholds: Thresholds | None = None, earlier: Bench | None = None
) -> BenchVerdict:
    """Return the verdict on a bench, by thresholds and against an earlier bench, if given."""
    share = thresholds.outlier_share if thresholds else OUTLIER_SHARE
    return BenchVerdict(
        find_limits(bench),
        tuple(find_outliers(bench, share)),
        tuple(find_misses(bench.measures, thresholds)) if thresholds else (),
        tuple(find_changes(earlier, bench)) if earlier else (),
        tuple(find_troubles(bench)),
        tuple(find_remarks(bench)),
        thresholds is not None,
        earlier is not None,
    )
