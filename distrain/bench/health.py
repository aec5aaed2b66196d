"""What is wrong with GPUs and nodes beside their figures. Pure."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from distrain.bench.document import Bench, Measure

_SLOWER = 0.95
"""A rate below this share of another is slower."""


def find_troubles(bench: Bench) -> list[str]:
    """Sentences on GPUs that fail an acceptance, and on how nodes differ in them."""
    return [*_of_gpus(bench), *_of_products(bench), *_differences(bench)]


def find_remarks(bench: Bench) -> list[str]:
    """Sentences on what is odd and fails nothing: two threads that load less than one."""
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
            for words in _of_gpu(gpu):
                yield f"node {node['node']} gpu {index}: {words}"


def _of_gpu(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu.get("uncorrected_errors"):
        yield f"{gpu['uncorrected_errors']} uncorrected memory errors since its driver was loaded"
    if gpu.get("remap_failed"):
        yield "a row of its memory could not be replaced by a spare one"
    elif gpu.get("remap_pending"):
        yield "a row of its memory is replaced at its next reset"
    if gpu.get("throttled_by"):
        yield f"its clocks are held down under load: {', '.join(gpu['throttled_by'])}"
    for now, most, words in zip(
        gpu.get("pcie", ()), gpu.get("pcie_most", ()), ("generation", "lanes"), strict=False
    ):
        if now and most and now < most:
            yield f"PCIe {words}: {now} of {most}, under load"


def _of_products(bench: Bench) -> Iterator[str]:
    """GPUs that get slower while they multiply."""
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
        found = {
            str(gpu[key]): str(node["node"])
            for node in bench.inventory
            for gpu in node.get("gpu_facts", ())
            if gpu.get(key) is not None
        }
        if len(found) > 1:
            yield f"GPUs differ in {words}: " + ", ".join(f"{v} on {n}" for v, n in found.items())
    counts = {len(node.get("gpus", ())): str(node.get("node")) for node in bench.inventory}
    if len(counts) > 1:
        yield "nodes differ in GPUs: " + ", ".join(f"{c} on {n}" for c, n in counts.items())
