"""A machine file of what was measured: of one rank's steps, of collectives, of cores. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

COLLECTIVES = ("all_to_all", "all_gather", "all_reduce")


@dataclass(frozen=True)
class Timed:
    """Collectives of one kind: the bytes that a rank's link carries, and seconds."""

    bytes: float
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What a machine file needs.

    Attributes:
        hosts: Namespaces with a rank each, on this one machine.
        cores: How many cores ranks have at a time, others' share taken off.
        one_rank: Rows of a batch, and seconds of one rank's step without waits for data.
        decode_values_per_s: Of one thread.
        collectives: By kind, among all hosts, the smallest message first.
        exchange_cpu_s_per_byte: Of two ranks, per byte that each sends.
    """

    hosts: int
    cores: float
    memory_bytes: float
    host_bytes_per_s: float
    one_rank: Sequence[tuple[int, float]]
    decode_values_per_s: float
    collectives: Mapping[str, Sequence[Timed]]
    exchange_cpu_s_per_byte: float


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and value at 0 of a line through the first and last point, neither below 0.

    >>> line_through([(1000, 0.015), (3000, 0.035)])
    (1e-05, 0.005)
    >>> line_through([(1000, 0.01), (3000, 0.06)])
    (2e-05, 0.0)
    """
    (x0, y0), (x1, y1) = points[0], points[-1]
    slope = max((y1 - y0) / (x1 - x0), 0.0)
    start = y0 - slope * x0
    return (slope, start) if start >= 0 else (y1 / x1, 0.0)


def latency_and_rate(timed: Sequence[Timed]) -> tuple[float, float]:
    """What a collective takes that sends next to nothing, and the bytes/s of a large one.

    >>> latency_and_rate([Timed(1e3, 0.002), Timed(1e6, 0.102)])
    (0.002, 10000000.0)
    """
    small, large = timed[0], timed[-1]
    return small.seconds, large.bytes / max(large.seconds - small.seconds, large.seconds / 10)


def machine_document(measured: Measured, name: str, how: str) -> dict[str, Any]:
    """A machine file as a document; each host is a node of one rank.

    Args:
        how: The command and the machine, for the sources.
    """
    per_row_s, overhead_s = line_through(measured.one_rank)
    found = {kind: latency_and_rate(measured.collectives[kind]) for kind in COLLECTIVES}
    latency_s = median(latency for latency, _ in found.values())
    rows = " and ".join(f"{rows:,}" for rows, _ in measured.one_rank)
    links = f"among {measured.hosts} hosts"
    numbers = {
        "ranks_per_node": (1, "a network namespace for each rank"),
        "nodes_per_host": (measured.hosts, "namespaces of one machine"),
        "cores": (measured.cores, f"speed of {measured.hosts} busy ranks over that of one"),
        "host_memory_bytes": (measured.memory_bytes, "what the system says"),
        "host_bytes_per_s": (measured.host_bytes_per_s, "STREAM's triad"),
        "device_memory_bytes": (measured.memory_bytes / measured.hosts, "its share of the host's"),
        "device_bytes_per_s": (measured.host_bytes_per_s, "as host_bytes_per_s"),
        "flops_per_s": (1.0, "not used: train_s_per_row is given"),
        "pcie_bytes_per_s": (measured.host_bytes_per_s, "not used on the CPU"),
        "link_bytes_per_s": (found["all_to_all"][1], "not used: a node has one rank"),
        "link_latency_s": (latency_s, "not used: a node has one rank"),
        "network_bytes_per_s": (found["all_to_all"][1], f"all-to-all {links}"),
        "network_all_gather_bytes_per_s": (found["all_gather"][1], f"all-gather {links}"),
        "network_all_reduce_bytes_per_s": (found["all_reduce"][1], f"all-reduce {links}"),
        "network_latency_s": (latency_s, f"the median of three collectives of 1 KiB {links}"),
        "decode_values_per_s": (measured.decode_values_per_s, "a loader with one thread"),
        "step_overhead_s": (overhead_s, f"one rank's steps of {rows} rows"),
        "train_s_per_row": (per_row_s, f"one rank's steps of {rows} rows"),
        "exchange_cpu_s_per_byte": (
            measured.exchange_cpu_s_per_byte,
            "processor time of two ranks' steps beyond that of one rank's",
        ),
    }
    sourced = {
        field: {"value": value, "source": f"{source}; {how}"}
        for field, (value, source) in numbers.items()
    }
    return {"name": name, "device": "cpu", **sourced}
