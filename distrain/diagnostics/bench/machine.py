"""A bench's document as the machine that `distrain plan --machine` plans for. Pure but for torch.

What a bench measured of one rank's DLRM says what a core does of any model's dense layers; what it
measured of collectives, what links carry.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from distrain.diagnostics.bench.document import Bench, Measure, Step
from distrain.diagnostics.bench.measuring.sizes import QUICK
from distrain.diagnostics.bench.measuring.steps import job_spec
from distrain.errors import InputError
from distrain.schema.criteo import criteo_schema

if TYPE_CHECKING:
    from distrain.train.planning.machine_file import MachineFile

_COLLECTIVES = ("all_to_all", "all_gather", "all_reduce")
_WAITS = ("data_wait", "exchange")


def machine_of_bench(bench: Bench, where: str = "") -> "MachineFile":
    """The machine of a bench, `where` its file is; each number's source is its measure."""
    from distrain.train.planning.machine_file import machine_of

    if bench.device != "cpu":
        raise _lacks(
            where,
            f"a bench on {bench.device} has no figures of the GPUs' memory and copies",
            "Write a machine file: docs/scaling.md has the fields, h100-node one to begin with.",
        )
    numbers = _node(bench, where) | _links(bench, where) | _training(bench, where)
    document: dict[str, Any] = {"name": f"bench {where}".strip(), "device": "cpu"}
    document |= {
        field: {"value": value, "source": source} for field, (value, source) in numbers.items()
    }
    return machine_of(document, where or "of a bench")


_Numbers = dict[str, tuple[float, str]]


def _node(bench: Bench, where: str) -> _Numbers:
    if not bench.inventory:
        raise _lacks(where, "it has no inventory of its nodes", _AGAIN)
    host_bytes_per_s = median(m.median for m in _measures(bench, "host.triad", where))
    workers = max(int(node["workers"]) for node in bench.inventory)
    memory = float(min(node["memory_bytes"] for node in bench.inventory))
    cores = min(int(node["cores"]) for node in bench.inventory)
    return {
        "ranks_per_node": (workers, "inventory: the most workers of a node"),
        "cores": (cores, "inventory: the fewest of a node"),
        "host_memory_bytes": (memory, "inventory: the least of a node"),
        "host_bytes_per_s": (host_bytes_per_s, "host.triad, the median node"),
        "device_memory_bytes": (memory / workers, "inventory: a worker's share of the node"),
        "device_bytes_per_s": (host_bytes_per_s, "host.triad, the median node"),
        "pcie_bytes_per_s": (host_bytes_per_s, "not used on the CPU"),
    }


def _links(bench: Bench, where: str) -> _Numbers:
    on_node, off_node = (_among(bench, suffix) for suffix in (".on_node", ".off_node"))
    if not (on_node or off_node):
        raise _lacks(where, "it has no collectives, which two workers need", _AGAIN)
    numbers: _Numbers = {}
    workers = max(int(node["workers"]) for node in bench.inventory)
    inside, between = (on_node, workers), (off_node, len(bench.inventory))
    for name, own, other in (("link", inside, between), ("network", between, inside)):
        said = "" if own[0] else "assumed, as nothing measured it: "
        used, ranks = own if own[0] else other
        for kind in _COLLECTIVES:
            rate, source = _rate(used[kind])
            field = "bytes_per_s" if kind == "all_to_all" else f"{kind}_bytes_per_s"
            numbers[f"{name}_{field}"] = (rate, said + source)
        numbers[f"{name}_latency_s"] = (
            median(_latency_s(kind, used[kind], ranks) for kind in _COLLECTIVES),
            f"{said}the median of the collectives' smallest messages",
        )
    return numbers


def _among(bench: Bench, suffix: str) -> dict[str, list[Measure]]:
    """Collectives of a suffix by kind; {} if one was not measured."""
    measures = {
        kind: [m for m in bench.measures if m.name == kind + suffix and m.size_bytes]
        for kind in _COLLECTIVES
    }
    return measures if all(measures.values()) else {}


def _rate(measures: Sequence[Measure]) -> tuple[float, str]:
    largest = max(m.size_bytes for m in measures)
    rates = [m.median for m in measures if m.size_bytes == largest]
    return median(rates), f"{measures[0].name} of {largest} bytes"


def _latency_s(kind: str, measures: Sequence[Measure], ranks: int) -> float:
    """The smallest messages' seconds; rates count the share of them that a link carries."""
    smallest = min(m.size_bytes for m in measures)
    share = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks
    return median(share * smallest / m.median for m in measures if m.size_bytes == smallest)


def _training(bench: Bench, where: str) -> _Numbers:
    from distrain.train.planning.memory_probe import dense_flops

    rates = [m.median for m in bench.measures if m.name == "loader.threads_1"]
    ones = sorted({(s.rows, _own_s(s)) for s in bench.steps if s.ranks == 1})
    if not rates or not ones:
        raise _lacks(where, "it has no loader with one thread, or no step on one rank", _AGAIN)
    spec, schema = _job()
    (rows, least_s), (most_rows, most_s) = ones[0], ones[-1]
    per_row_s, overhead_s = least_s / rows, 0.0
    said = "not told apart: steps of one rank have one size"
    if most_rows > rows and most_s > least_s:
        per_row_s = (most_s - least_s) / (most_rows - rows)
        overhead_s = max(0.0, least_s - per_row_s * rows)
        said = f"steps of one rank of {rows} and {most_rows} rows"
    flops = dense_flops(spec, schema) / spec.resources.threads_per_rank
    return {
        "decode_values_per_s": (median(rates) * len(schema.columns), "loader.threads_1"),
        "flops_per_s": (flops / per_row_s, "the bench's DLRM on one rank, embeddings included"),
        "step_overhead_s": (overhead_s, said),
    }


def _own_s(step: Step) -> float:
    """A rank's step in the median window, without its waits."""
    (seconds,) = step.seconds
    own_s = sum(s for phase, s in seconds.items() if phase not in _WAITS)
    return step.rows / step.rate * own_s / sum(seconds.values())


def _job() -> tuple[Any, Any]:
    """The spec and schema of benches' jobs."""
    names = [f"C{number}" for number in range(1, 27)]
    return job_spec(Path("data"), QUICK, "cpu", 1, 1), criteo_schema(dict.fromkeys(names, 8))


def _measures(bench: Bench, name: str, where: str) -> list[Measure]:
    measures = [m for m in bench.measures if m.name == name]
    if not measures:
        raise _lacks(where, f"it has no {name}", _AGAIN)
    return measures


_AGAIN = "Run `distrain bench` again, on a cluster of two workers or more."


def _lacks(where: str, what: str, hint: str) -> InputError:
    return InputError(
        f"the bench cannot be planned with: {what}",
        where={"file": where} if where else {},
        hint=hint,
    )
