"""Rounds of measurements: what a machine file needs, and the steps that it is to predict."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.plan_scale_bench.hosts import CappedHosts, Ranks
from benchmarks.plan_scale_bench.machine import COLLECTIVES, Measured, Timed
from benchmarks.plan_scale_bench.work import Orders, job
from distrain.diagnostics.bench.measuring.hosts import stream

SMALL_BYTES = 1024
UNCAPPED = 0


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rank_rows: Rows of a rank's step.
        windows: Of each training, the first of which is not counted.
        message_bytes: Of large collectives.
    """

    rank_rows: int
    window_steps: int
    windows: int
    rounds: int
    message_bytes: int
    repeats: int
    spin_s: float
    ranks: tuple[int, ...]
    mbits: tuple[int, ...]

    @property
    def cases(self) -> list[tuple[int, int]]:
        """Ranks, and the links' rate: one rank has none."""
        return [(1, UNCAPPED), *((n, mbit) for mbit in self.mbits for n in self.ranks if n > 1)]


@dataclass
class Found:
    """All repetitions.

    Attributes:
        steps: By ranks, Mbit/s and rows of a rank: the windows of a rank each.
        collectives: Seconds by Mbit/s, kind and bytes.
        cores: How many ranks' work all ranks do at a time.
    """

    steps: dict[tuple[int, int, int], list[dict[str, Any]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    collectives: dict[tuple[int, str, float], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    cores: list[float] = field(default_factory=list)
    decode_rows_per_s: list[float] = field(default_factory=list)
    triad: list[float] = field(default_factory=list)


class Rounds:
    """Takes turns, so that what else the machine does falls on all of them."""

    def __init__(
        self, hosts: CappedHosts, ranks: Ranks, orders: Orders, data: Path, sizes: Sizes
    ) -> None:
        self.hosts, self.ranks, self.orders = hosts, ranks, orders
        self.data, self.sizes, self.found = data, sizes, Found()

    def warm_up(self) -> None:
        """Have the processes import what they need."""
        most = max(self.sizes.ranks)
        self.ranks(self.orders.train(job(self.data, most, self.sizes.rank_rows, 2, 1)))

    def one(self) -> None:
        """A round."""
        sizes = self.sizes
        self._cores()
        for rows in (sizes.rank_rows // 2, sizes.rank_rows, 2 * sizes.rank_rows):
            self._train(1, UNCAPPED, rows)
        self._load()
        if max(sizes.ranks) > 1:
            self._train(2, UNCAPPED, sizes.rank_rows)
        for mbit in sizes.mbits:
            self._collectives(mbit)
            for ranks in sizes.ranks:
                if ranks > 1:
                    self._train(ranks, mbit, sizes.rank_rows)

    def _cores(self) -> None:
        seconds, most = self.sizes.spin_s, max(self.sizes.ranks)
        counts = []
        for ranks in (1, most):
            start_s = time.time() + 0.05
            order = {"do": "spin", "start_s": start_s, "seconds": seconds}
            counts.append(sum(told["count"] for told in self.ranks([order] * ranks)))
        self.found.cores.append(counts[1] / counts[0])

    def _train(self, ranks: int, mbit: int, rows: int) -> None:
        sizes = self.sizes
        self.hosts.cap(mbit)
        spec = job(self.data, ranks, rows, sizes.windows * sizes.window_steps, sizes.window_steps)
        for told in self.ranks(self.orders.train(spec)):
            self.found.steps[ranks, mbit, rows] += told["windows"][1:]

    def _load(self) -> None:
        order = {"do": "load", "train": str(self.data / "train"), "epochs": 2}
        (told,) = self.ranks([order | {"batch_rows": self.sizes.rank_rows}])
        self.found.decode_rows_per_s += [rows / seconds for rows, seconds in told["epochs"]]
        self.found.triad += stream(2**24, 3)["host.triad"]

    def _collectives(self, mbit: int) -> None:
        self.hosts.cap(mbit)
        # From one between them the time of the largest is told, which else may be left out.
        sizes = (SMALL_BYTES, 2**16, self.sizes.message_bytes)
        ranks = max(self.sizes.ranks)
        told = self.ranks(self.orders.collectives(ranks, sizes, self.sizes.repeats))
        for measure in told[0]["measures"]:
            kind = measure["name"].removesuffix(".off_node")
            share = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks
            sent = share * measure["size_bytes"]
            self.found.collectives[mbit, kind, sent] += [sent / rate for rate in measure["values"]]

    def measured(self, mbit: int, columns: int, dense_bytes: float) -> Measured:
        """What a machine file of these links is made of."""
        found, rows, most = self.found, self.sizes.rank_rows, max(self.sizes.ranks)
        ones = [
            (n, step_s(found.steps[1, UNCAPPED, n], waits=False)) for n in (rows // 2, 2 * rows)
        ]
        timed: dict[str, list[Timed]] = {kind: [] for kind in COLLECTIVES}
        for (of, kind, sent), seconds in sorted(found.collectives.items()):
            if of == mbit:
                timed[kind].append(Timed(sent, median(seconds)))
        alone, two = (found.steps[n, UNCAPPED, rows] for n in (1, 2))
        more_s = cpu_s(two) - cpu_s(alone)
        return Measured(
            hosts=most,
            cores=median(found.cores),
            memory_bytes=float(psutil.virtual_memory().total),
            host_bytes_per_s=median(found.triad),
            one_rank=ones,
            decode_values_per_s=columns * median(found.decode_rows_per_s),
            collectives=timed,
            exchange_cpu_s_per_byte=max(0.0, more_s) / (sent_bytes(two) + dense_bytes),
        )


def _median(values: Iterable[float]) -> float:
    return float(median(values))


def step_s(windows: list[dict[str, Any]], waits: bool = True) -> float:
    """The median step; without waits for the loader if so asked."""
    return _median(
        (sum(of["seconds"].values()) - (0.0 if waits else of["seconds"]["data_wait"])) / of["steps"]
        for of in windows
    )


def cpu_s(windows: list[dict[str, Any]]) -> float:
    """The processor time of a rank's process in the median step."""
    return _median(of["cpu_s"] / of["steps"] for of in windows)


def sent_bytes(windows: list[dict[str, Any]]) -> float:
    """What a rank sends for the tables in the median step."""
    return _median(of["sent_bytes"] for of in windows)


def phases_s(windows: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of the median step by phase."""
    names = [name for name, s in windows[0]["seconds"].items() if s or name == "exchange"]
    return {name: median(of["seconds"][name] / of["steps"] for of in windows) for name in names}
