"""How long a step takes on many ranks, in formulas: its parts, its links, what binds.

A step of a rank is a pipeline of three stages that run beside each other, so the slowest sets the
pace: decoding on the node's cores, the copy to the device, and training, whose parts follow on
each other:

| part | seconds |
|---|---|
| decode | values of all ranks of the node / (cores * `decode_values_per_s`) |
| host_to_device | bytes of a batch / `pcie_bytes_per_s`; none on the CPU |
| compute | the slower of dense layers and memory, or what was measured, plus `step_overhead_s` |
| exchange | of each store: the slower of its bytes on the node and off it, and its collectives |
| all_reduce | of dense gradients: within the node, then among nodes, on all links at once |
| exchange_cpu | bytes that a rank sends * `exchange_cpu_s_per_byte`: routes, copies, adding up |
| overlap | below 0, on the CPU alone: the exchange that runs beside the rest of the backward pass |

On the CPU, ranks that have fewer cores than threads slow each other down: `compute` and
`exchange_cpu` grow as much. All ranks begin these at the same time, when rows have come, so the
network does not hide them; but what is sent last, sums of gradients, travels while the gradients of
parameters are made, a third of the dense layers' operations, where batches are not cut into slices.
On a GPU nothing is taken to be hidden: a step that overlaps its exchange is faster than this.
All-gathers go around a ring of all GPUs of a node, so that each block crosses the network once for
a node, divided among its NICs; all-to-alls go straight to each peer. No torch in here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.costs import sent_bytes, split_bytes
from distrain.train.planning.machine_file import MachineFile

BACKWARD_REST = 1 / 3
"""The share of a slice's computing that is done while sums of gradients travel, on the CPU."""


@dataclass(frozen=True)
class TableStore:
    """Tables of one width and placement, whose collectives they share."""

    dim: int
    placement: str
    sent_bytes: float  # what a rank sends in a step, to all peers
    collectives: int  # how many operations that takes


@dataclass(frozen=True)
class Work:
    num_ranks: int
    rows: int
    global_rows: int  # rows of all ranks' batches
    values: float  # values to decode
    copied_bytes: float  # bytes for its device
    flops: float  # of the dense layers, forward and backward
    memory_bytes: float  # bytes through the device's memory: embeddings, sums, updates, activations
    dense_bytes: float  # gradients of the dense parameters
    threads: int  # threads of a rank that trains on the CPU
    stores: tuple[TableStore, ...]
    slices: int = 1  # parts in which its rows go through the dense layers, one after another


@dataclass(frozen=True)
class ResourceShare:
    """A resource and how long a step keeps it busy; it could serve `headroom` times the rows/s."""

    name: str
    busy_s: float
    headroom: float


@dataclass(frozen=True)
class Scale:
    num_ranks: int
    nodes: int
    step_s: float
    rows_per_s: float
    efficiency: float  # a rank's rows/s as a share of those of one rank alone with such a batch
    parts_s: dict[str, float]  # seconds of each part of a step
    exchange_s: dict[str, float]  # seconds of the exchange, by the tables' placement
    link_bytes: float  # from a rank to ranks of its node; `network_bytes`: to others
    network_bytes: float
    binds: tuple[ResourceShare, ...]  # the resources, longest busy first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def predict(work: Work, machine: MachineFile) -> Scale:
    traffic = _traffic(work, machine)
    parts, step_s = _step(work, machine, traffic)
    alone_s = _step(replace(work, num_ranks=1, stores=()), machine, _NO_TRAFFIC)[1]
    busy = {
        "cores that decode": parts["decode"],
        "PCIe": parts["host_to_device"],
        "compute": parts["compute"],
        "links of a node": traffic.link_s,
        "network": traffic.network_s,
    }
    if machine.device == "cpu":  # the same cores decode, train and exchange
        busy["compute"] = max(parts["compute"], _cores_s(work, machine, parts))
        del busy["cores that decode"]
    ordered = sorted(busy.items(), key=lambda item: (-item[1], item[0]))
    return Scale(
        num_ranks=work.num_ranks,
        nodes=-(-work.num_ranks // machine.ranks_per_node),
        step_s=step_s,
        rows_per_s=work.global_rows / step_s,
        efficiency=alone_s / step_s,
        parts_s=parts,
        exchange_s=traffic.exchange_s,
        link_bytes=traffic.link_bytes,
        network_bytes=traffic.network_bytes,
        binds=tuple(ResourceShare(name, s, step_s / s) for name, s in ordered if s > 0),
    )


@dataclass(frozen=True)
class _Traffic:
    """A step's traffic, and its time on the links; `late_s`: that of sums of gradients."""

    exchange_s: dict[str, float]
    link_bytes: float
    network_bytes: float
    link_s: float
    network_s: float
    all_reduce_s: float = 0.0
    late_s: float = 0.0


_NO_TRAFFIC = _Traffic({}, 0.0, 0.0, 0.0, 0.0)


def _step(work: Work, machine: MachineFile, traffic: _Traffic) -> tuple[dict[str, float], float]:
    here, slower = machine.on_host(work.num_ranks), _slower(work, machine)
    sent_bytes = traffic.link_bytes + traffic.network_bytes
    parts = {
        "decode": work.values * here / (machine.cores * machine.decode_values_per_s),
        "host_to_device": 0.0,
        "compute": slower * _compute_s(work, machine, here),
        "exchange": sum(traffic.exchange_s.values()),
        "all_reduce": traffic.all_reduce_s,
        "exchange_cpu": slower * sent_bytes * machine.exchange_cpu_s_per_byte,
        "overlap": 0.0,
    }
    if machine.device == "cuda":
        # The batches of all ranks pass the host's memory: written by a decoder, read by the copy.
        from_host = machine.host_bytes_per_s / (2 * here)
        parts["host_to_device"] = work.copied_bytes / min(machine.pcie_bytes_per_s, from_host)
        return parts, max(parts["decode"], parts["host_to_device"], _trains_s(parts))
    if work.slices == 1:
        parts["overlap"] = 0.0 - min(traffic.late_s, BACKWARD_REST * parts["compute"])
    return parts, max(_trains_s(parts), _cores_s(work, machine, parts))


def _trains_s(parts: Mapping[str, float]) -> float:
    return sum(s for part, s in parts.items() if part not in ("decode", "host_to_device"))


def _cores_s(work: Work, machine: MachineFile, parts: Mapping[str, float]) -> float:
    busy = min(work.threads * machine.on_host(work.num_ranks), machine.cores) / machine.cores
    return parts["decode"] + (parts["compute"] + parts["exchange_cpu"]) * busy


def _slower(work: Work, machine: MachineFile) -> float:
    """The factor on the CPU's work where ranks have fewer cores than threads."""
    if machine.device != "cpu":
        return 1.0
    return max(
        1.0, min(work.threads, machine.cores) * machine.on_host(work.num_ranks) / machine.cores
    )


def _compute_s(work: Work, machine: MachineFile, here: int) -> float:
    """Seconds of a rank's own work on cores of its own."""
    threads, memory = 1.0, machine.device_bytes_per_s
    if machine.device == "cpu":
        threads = min(work.threads, machine.cores)
        memory /= min(here, machine.cores / threads)  # which so many ranks use at a time
    if machine.train_s_per_row:
        return machine.train_s_per_row * work.rows / threads + machine.step_overhead_s
    dense_s = work.flops / (machine.flops_per_s * threads)
    return max(dense_s, work.memory_bytes / memory) + machine.step_overhead_s


def _traffic(work: Work, machine: MachineFile) -> _Traffic:
    ranks, here = work.num_ranks, min(work.num_ranks, machine.ranks_per_node)
    if ranks == 1:
        return _NO_TRAFFIC
    on_one_node = ranks <= here
    latency_s = machine.link_latency_s if on_one_node else machine.network_latency_s
    exchange_s: dict[str, float] = {}
    link_bytes = network_bytes = link_s = network_s = late_s = 0.0
    for store in work.stores:
        kind = "all_to_all" if PLACEMENTS[store.placement].is_dealt else "all_gather"
        on_node, off_node = split_bytes(store.sent_bytes, store.placement, ranks, here)
        on_s, off_s = on_node / machine.link_rate(kind), off_node / machine.network_rate(kind)
        seconds = max(on_s, off_s) + store.collectives * latency_s
        exchange_s[store.placement] = exchange_s.get(store.placement, 0.0) + seconds
        late_s += max(on_s, off_s) * _sums_share(store.placement, store.dim)
        link_bytes, network_bytes = link_bytes + on_node, network_bytes + off_node
        link_s, network_s = link_s + on_s, network_s + off_s
    on_node, off_node = _all_reduce_bytes(work.dense_bytes, ranks, here)
    on_s = on_node / machine.link_rate("all_reduce")
    off_s = off_node / machine.network_rate("all_reduce")
    return _Traffic(
        exchange_s,
        link_bytes + on_node,
        network_bytes + off_node,
        link_s + on_s,
        network_s + off_s,
        on_s + off_s + latency_s,
        late_s + on_s + off_s,
    )


def _sums_share(placement: str, dim: int) -> float:
    """The share of sums of gradients in the bytes of a store.

    >>> _sums_share("row_wise", 16), _sums_share("replicated", 15)
    (0.48484848484848486, 0.9375)
    """
    sent = sent_bytes(placement, 1.0, dim, 2)
    return sent.sums / sent.total


def _all_reduce_bytes(dense_bytes: float, ranks: int, here: int) -> tuple[float, float]:
    on_node = 2 * (here - 1) / here * dense_bytes
    nodes = ranks / here
    return on_node, 2 * (nodes - 1) / nodes * dense_bytes / here
