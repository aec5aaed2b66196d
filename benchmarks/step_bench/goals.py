"""The figures of this benchmark that have goals, and the goals."""

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.step_bench.cases import (
    BATCH,
    DDP,
    FBGEMM,
    GROWTH,
    OURS,
    PEER_NAMES,
    SMALL,
    SMALL_PAGES,
    SPARSE,
    STRETCHED,
    TORCHREC_NAMES,
)
from benchmarks.step_bench.contender import Setup
from benchmarks.step_bench.turns import Measured

AT_LEAST = {
    "path_sgd_x_26_tables": 1.8,
    "path_adam_x_sparse_adam": 3.0,
    "path_rowwise_adagrad_x_fbgemm": 1.0,
    "2_ranks_x_ddp": 1.7,
    "2_ranks_x_torchrec_table_wise": 1.0,
}
AHEAD_OF_PEERS = 1.0
"""Goal of every other ratio of ranks to peers; which ones exist depends on the options."""
BELOW = {"growth_of_step": 1.5}
GPU_AT_LEAST = {"gpu_mlp_eager": 32e6, "gpu_mlp_graph_bf16": 100e6, "gpu_dlrm": 60e6}


@dataclass(frozen=True)
class Figure:
    """A figure and its goal.

    Attributes:
        value: The median of `rounds`; `None` if the run did not measure it.
        rounds: The value in each round.
        goal: In words; `None` if the figure has no goal.
        met: Whether the goal is met; `False` if the value is missing, `None` if there is no goal.
    """

    value: float | None
    rounds: tuple[float, ...]
    goal: str | None
    met: bool | None


def figures(results: Sequence[Measured], cuda: bool) -> dict[str, Figure]:
    """Return all figures by name."""
    found = dict(ratios(results)) | dict(growths(results)) | dict(of_ranks(results))
    wanted = dict.fromkeys(dict(of_ranks(results)), AHEAD_OF_PEERS) | AT_LEAST
    if cuda:
        found |= dict(on_gpu(results))
        wanted |= GPU_AT_LEAST
    made = {}
    for name in dict.fromkeys((*wanted, *BELOW, *(["gpu_host_syncs"] if cuda else []), *found)):
        rounds = tuple(found.get(name, ()))
        value = statistics.median(rounds) if rounds else None
        goal, met = judged(name, value, wanted)
        made[name] = Figure(value, rounds, goal, met)
    return made


def judged(name: str, value: float | None, at_least: dict[str, float]) -> tuple[str | None, Any]:
    """Return the goal in words, and whether it is met."""
    if name in at_least:
        return f">= {at_least[name]:g}", value is not None and value >= at_least[name]
    if name in BELOW:
        return f"< {BELOW[name]:g}", value is not None and value < BELOW[name]
    if name == "gpu_host_syncs":
        return "0", value == 0
    return None, None


def ratios(results: Sequence[Measured]) -> Iterator[tuple[str, list[float]]]:
    """Yield ratios of one rank to peers: rows/s of distrain over theirs."""
    for name, comparison, peer in (
        ("path_sgd_x_26_tables", "embeddings, sgd", PEER_NAMES[SPARSE, "sgd"]),
        ("path_sgd_x_fbgemm", "embeddings, sgd", PEER_NAMES[FBGEMM, "sgd"]),
        (
            "path_rowwise_adagrad_x_fbgemm",
            "embeddings, rowwise_adagrad",
            PEER_NAMES[FBGEMM, "rowwise_adagrad"],
        ),
        ("path_adam_x_sparse_adam", "embeddings, adam", PEER_NAMES[SPARSE, "adam"]),
        ("1_rank_x_26_tables", "MLP 16, 1 rank, peers", PEER_NAMES[SPARSE, "sgd"]),
    ):
        own = find(results, comparison, OURS)
        for pages in ("", SMALL_PAGES):
            other = find(results, comparison, peer + pages)
            if own and other:
                yield name + pages.replace(", ", "_").replace(" ", "_"), times(own, other)


def of_ranks(results: Sequence[Measured]) -> Iterator[tuple[str, list[float]]]:
    """Yield ratios of several ranks, with placement `auto`, to peers, on links of each rate."""
    rivals = {DDP: "ddp"} | {told: f"torchrec_{word}" for word, told in TORCHREC_NAMES.items()}
    for own in results:
        if own.entry.name != f"{OURS}, auto":
            continue
        mbit = re.search(r"(\d+) Mbit/s$", own.comparison)
        links = f"_{mbit[1]}_mbit" if mbit else ""
        for rival, word in rivals.items():
            other = find(results, own.comparison, rival)
            if other:
                yield f"{own.entry.setup.ranks}_ranks{links}_x_{word}", times(own, other)


def growths(results: Sequence[Measured]) -> Iterator[tuple[str, list[float]]]:
    """Yield seconds per step with large tables over those with small tables."""
    for name, what in (("growth_of_step", OURS), ("growth_of_path", f"{OURS}, path")):
        small, large = (find(results, GROWTH, f"{what}, {d}") for d in (SMALL, STRETCHED))
        if small and large:
            yield name, times(small, large)


def on_gpu(results: Sequence[Measured]) -> Iterator[tuple[str, list[float]]]:
    """Yield rows/s and host syncs of whole steps at batch 64k on one GPU."""
    own = [
        each
        for each in results
        if each.entry.who == OURS and each.batch_rows == BATCH and each.entry.setup.ranks == 1
    ]
    whole = [each for each in own if each.entry.setup.model != "path"]
    for name, model, fitting in (
        ("gpu_mlp_eager", "mlp", is_eager),
        ("gpu_mlp_graph_bf16", "mlp", lambda setup: setup.graph and setup.precision == "bf16"),
        ("gpu_dlrm", "dlrm", lambda setup: True),
    ):
        fits = [
            each
            for each in whole
            if (each.entry.setup.model, each.entry.setup.dim) == (model, 16)
            and fitting(each.entry.setup)
        ]
        if fits:
            best = max(fits, key=lambda each: each.rows_per_s)
            yield name, [BATCH / seconds for seconds in best.step_s]
    syncs = [each.counts["host_syncs"] for each in whole]
    if syncs:
        yield "gpu_host_syncs", [float(max(syncs))]


def is_eager(setup: Setup) -> bool:
    """Return True if torch launches each kernel separately, in fp32 or tf32."""
    return not setup.graph and setup.precision != "bf16"


def find(results: Iterable[Measured], comparison: str, name: str) -> Measured | None:
    """Return a contender of a comparison; None if it was not run."""
    for each in results:
        if (each.comparison, each.entry.name) == (comparison, name):
            return each
    return None


def times(one: Measured, other: Measured) -> list[float]:
    """Return how many times as fast `one` is, by round, so that both ran under the same load."""
    return [theirs / own for own, theirs in zip(one.step_s, other.step_s, strict=True)]
