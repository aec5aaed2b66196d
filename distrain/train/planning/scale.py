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

Nothing of the exchange is taken to be hidden behind computing, so a step that overlaps them is
faster than this. All-gathers go around a ring of all GPUs of a node, so that each block crosses the
network once for a node, divided among its NICs; all-to-alls go straight to each peer. No torch in
here.
"""

from dataclasses import asdict, dataclass
from typing import Any

from distrain.train.planning.machine_file import MachineFile


@dataclass(frozen=True)
class Store:
    """Tables of one width and placement, whose collectives they share.

    Attributes:
        sent_bytes: What a rank sends in a step, to all peers.
        collectives: How many operations that takes.
    """

    dim: int
    placement: str
    sent_bytes: float
    collectives: int


@dataclass(frozen=True)
class Work:
    """What one rank does in a step.

    Attributes:
        rows: Rows of its batch.
        global_rows: Of all ranks' batches.
        values: Values that it decodes.
        copied_bytes: What goes to its device.
        flops: Of the dense layers, forward and backward.
        memory_bytes: What goes through the device's memory: embeddings, sums, updates, activations.
        dense_bytes: Gradients of the dense parameters.
        threads: Threads of a rank that trains on the CPU.
    """

    num_ranks: int
    rows: int
    global_rows: int
    values: float
    copied_bytes: float
    flops: float
    memory_bytes: float
    dense_bytes: float
    threads: int
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Share:
    """A resource and how long a step keeps it busy; it could serve `headroom` times the rows/s."""

    name: str
    busy_s: float
    headroom: float


@dataclass(frozen=True)
class Scale:
    """The prediction for a number of ranks.

    Attributes:
        parts_s: Seconds of each part of a step.
        exchange_s: Of these the exchange, by the tables' placement.
        link_bytes: What a rank sends in a step to ranks of its node; `network_bytes`: to others.
        efficiency: Rows/s of a rank, as a share of what one rank alone does with such a batch.
        binds: What is busy longest, first.
    """

    num_ranks: int
    nodes: int
    step_s: float
    rows_per_s: float
    efficiency: float
    parts_s: dict[str, float]
    exchange_s: dict[str, float]
    link_bytes: float
    network_bytes: float
    binds: tuple[Share, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def predict(work: Work, machine: MachineFile) -> Scale:
    """Predict a step."""
    traffic = _traffic(work, machine)
    parts, step_s = _step(work, machine, traffic)
    alone_s = _step(_alone(work), machine, _Traffic({}, 0.0, 0.0, 0.0, 0.0))[1]
    busy = {
        "cores that decode": parts["decode"],
        "PCIe": parts["host_to_device"],
        "compute": parts["compute"],
        "links of a node": traffic.link_s,
        "network": traffic.network_s,
    }
    if machine.device == "cpu":  # the same cores decode, train and exchange
        here = min(work.num_ranks, machine.ranks_per_node)
        share = min(work.threads * here, machine.cores) / machine.cores
        together_s = busy.pop("cores that decode") + parts["compute"] * share
        busy["compute"] = max(parts["compute"], together_s)
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
        binds=tuple(Share(name, s, step_s / s) for name, s in ordered if s > 0),
    )


@dataclass(frozen=True)
class _Traffic:
    """What a step sends, and how long it keeps the links busy."""

    exchange_s: dict[str, float]
    link_bytes: float
    network_bytes: float
    link_s: float
    network_s: float
    all_reduce_s: float = 0.0


def _alone(work: Work) -> Work:
    return Work(**(asdict(work) | {"num_ranks": 1, "stores": ()}))


def _step(work: Work, machine: MachineFile, traffic: _Traffic) -> tuple[dict[str, float], float]:
    """The parts of a step, and its length."""
    ranks_here = min(work.num_ranks, machine.ranks_per_node)
    parts = {
        "decode": work.values * ranks_here / (machine.cores * machine.decode_values_per_s),
        "host_to_device": 0.0,
        "compute": _compute_s(work, machine, ranks_here),
        "exchange": sum(traffic.exchange_s.values()),
        "all_reduce": traffic.all_reduce_s,
    }
    trains_s = parts["compute"] + parts["exchange"] + parts["all_reduce"]
    if machine.device == "cuda":
        # The batches of all ranks pass the host's memory: written by a decoder, read by the copy.
        from_host = machine.host_bytes_per_s / (2 * ranks_here)
        parts["host_to_device"] = work.copied_bytes / min(machine.pcie_bytes_per_s, from_host)
        return parts, max(parts["decode"], parts["host_to_device"], trains_s)
    # On the CPU decoding and training share the cores, of which training may leave some.
    busy_cores = min(work.threads * ranks_here, machine.cores)
    together_s = parts["decode"] + parts["compute"] * busy_cores / machine.cores
    return parts, max(parts["decode"], trains_s, together_s)


def _compute_s(work: Work, machine: MachineFile, ranks_here: int) -> float:
    cores, memory = 1.0, machine.device_bytes_per_s
    if machine.device == "cpu":
        cores = min(work.threads, machine.cores / ranks_here)
        memory /= ranks_here
    if machine.train_s_per_row:
        return (machine.train_s_per_row * work.rows + machine.step_overhead_s) / min(1.0, cores)
    dense_s = work.flops / (machine.flops_per_s * cores)
    return max(dense_s, work.memory_bytes / memory) + machine.step_overhead_s / min(1.0, cores)


def _traffic(work: Work, machine: MachineFile) -> _Traffic:
    ranks, here = work.num_ranks, min(work.num_ranks, machine.ranks_per_node)
    if ranks == 1:
        return _Traffic({}, 0.0, 0.0, 0.0, 0.0)
    latency_s = machine.link_latency_s if ranks == here else machine.network_latency_s
    exchange_s: dict[str, float] = {}
    link_bytes = network_bytes = link_s = network_s = 0.0
    for store in work.stores:
        on_node, off_node = _split(store.sent_bytes, store.placement, ranks, here)
        on_s, off_s = on_node / machine.link_bytes_per_s, off_node / machine.network_bytes_per_s
        seconds = max(on_s, off_s) + store.collectives * latency_s
        exchange_s[store.placement] = exchange_s.get(store.placement, 0.0) + seconds
        link_bytes, network_bytes = link_bytes + on_node, network_bytes + off_node
        link_s, network_s = link_s + on_s, network_s + off_s
    on_node, off_node = _all_reduce_bytes(work.dense_bytes, ranks, here)
    on_s, off_s = on_node / machine.link_bytes_per_s, off_node / machine.network_bytes_per_s
    return _Traffic(
        exchange_s,
        link_bytes + on_node,
        network_bytes + off_node,
        link_s + on_s,
        network_s + off_s,
        on_s + off_s + latency_s,
    )


def _split(sent: float, placement: str, ranks: int, here: int) -> tuple[float, float]:
    """Bytes that a rank sends over the node's links, and over its NIC."""
    if ranks == here:
        return sent, 0.0
    if placement == "replicated":  # an all-gather, in which all blocks pass each GPU
        return sent, sent / (ranks - 1) * (ranks / here - 1)
    least = ranks % here or here  # a last node with fewer ranks sends most over its NICs
    return sent * (here - 1) / (ranks - 1), sent * (ranks - least) / (ranks - 1)


def _all_reduce_bytes(dense_bytes: float, ranks: int, here: int) -> tuple[float, float]:
    on_node = 2 * (here - 1) / here * dense_bytes
    nodes = ranks / here
    return on_node, 2 * (nodes - 1) / nodes * dense_bytes / here
