"""Evaluates a bench, including faults of GPUs and differences between nodes; no I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from distrain.diagnostics.bench.comparison import common_measures, find_changes
from distrain.diagnostics.bench.limits import find_limits
from distrain.diagnostics.bench.results import Bench, BenchFinding
from distrain.diagnostics.bench.thresholds import (
    OUTLIER_SHARE,
    Thresholds,
    find_misses,
    find_outliers,
)

_SLOWER = 0.95
"""A rate is slower than another rate if it is below this share of the other."""


def find_troubles(bench: Bench) -> Iterator[BenchFinding]:
    """Yield findings on faulty GPUs, GPUs that slow down under load, and nodes that differ.

    GPUs slow down if they get more than 5 % slower. Nodes differ if their GPUs have other types,
    drivers or ECC modes, or if they have other numbers of GPUs.
    """
    for node in bench.inventory:
        for index, gpu in enumerate(node.get("gpu_facts", ())):
            place = f"node {node['node']} gpu {index}"
            yield from (BenchFinding("gpu", place, f"{place}: {text}") for text in _of_gpu(gpu))
    for one in bench.measures:
        if one.name == "gpu.product" and len(one.values) > 3:
            middle = len(one.values) // 2
            ratio = median(one.values[middle:]) / median(one.values[:middle])
            if ratio < _SLOWER:
                text = f"{one.place}: products get {100 * (1 - ratio):.0f} % slower under load"
                yield BenchFinding(one.name, one.place, text)
    yield from (BenchFinding("nodes", "", text) for text in _differences(bench))


def find_remarks(bench: Bench) -> Iterator[BenchFinding]:
    """Yield remarks on nodes where two loader threads are more than 5 % slower than one."""
    rates = {(m.name, m.place): m.median for m in bench.measures}
    for (name, place), rate in rates.items():
        one_thread = rates.get(("loader.threads_1", place), 0.0)
        if name == "loader.threads_2" and rate < _SLOWER * one_thread:
            text = f"{place}: two threads of a loader are slower than one, {rate:,.0f} of "
            yield BenchFinding(name, place, f"{text}{one_thread:,.0f} rows/s")


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
    limits: Mapping[str, float]  # the result of `find_limits`
    # by kind: `misses` of thresholds, `outliers`, `troubles` of GPUs and nodes, `changes` since an
    # earlier bench, and `remarks`
    findings: Mapping[str, list[BenchFinding]]

    @property
    def failures(self) -> list[BenchFinding]:
        return [one for found in self.findings.values() for one in found if one.fails]

    @property
    def passed(self) -> bool:
        return not self.failures


def judge(
    bench: Bench, thresholds: Thresholds | None = None, earlier: Bench | None = None
) -> BenchVerdict:
    """Return the verdict on a bench, by thresholds and against an earlier bench, if given.

    Failures are missed thresholds, measures that are worse than before, and an earlier bench
    without a common measure. With thresholds, slow outliers and troubles are failures, too.
    """
    share = thresholds.outlier_share if thresholds else OUTLIER_SHARE
    accepts = thresholds is not None
    findings = {
        "misses": [*find_misses(bench.measures, thresholds)] if thresholds else [],
        "outliers": [
            replace(one, fails=accepts and one.gain < 0) for one in find_outliers(bench, share)
        ],
        "troubles": [replace(one, fails=accepts) for one in find_troubles(bench)],
        "changes": find_changes(earlier, bench) if earlier else [],
        "remarks": [*find_remarks(bench)],
    }
    if earlier and not common_measures(earlier, bench):
        text = "the earlier bench has no common measure: another mode, device or nodes"
        findings["changes"].append(BenchFinding("earlier bench", "", text, fails=True))
    return BenchVerdict(find_limits(bench), findings)
