"""Runs gangs of ranks as forks of this process, and counts what their steps send."""

import json
import os
import statistics
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch's optimizers import it, which takes long: once, before the forks
from torch import distributed as dist

from benchmarks.exchange_bench.counting import CountedGroup, counted_group
from distrain.jobs.spec import MlpSpec, TrainSpec
from distrain.loader.batch import Batch
from distrain.models import build_model
from distrain.models.embeddings import EmbeddingCollection, Peers
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

COLUMNS, NUMBERS, DIM = 26, 13, 16
CARDINALITIES = [20_000 if number % 3 == 0 else 500 for number in range(COLUMNS)]
NAMES = tuple(f"C{number}" for number in range(COLUMNS))
NUMBER_NAMES = tuple(f"I{number}" for number in range(NUMBERS))
PLACEMENTS = {
    "replicated": ["replicated"] * COLUMNS,
    "row_wise": ["row_wise"] * COLUMNS,
    "mixed": ["row_wise" if number % 3 == 0 else "replicated" for number in range(COLUMNS)],
}
KINDS = ("full", "empty")


@dataclass(frozen=True)
class Step:
    """The counts and times of one step on one rank.

    Attributes:
        kind: "full": the rank's batch has rows, and most of their ids occur on other ranks too;
            "empty": no rank's batch has rows.
        messages: Collective operations of the step itself, and of its route.
        sent_bytes: Bytes that the rank sent in the step itself, and for its route.
        told_bytes: Bytes of ids, rows and sums according to the route's `traffic`.
        dense_bytes: Bytes sent to sum dense gradients.
        route_ms: Processor time of the rank's process while it made the route.
        step_ms: Processor time of the rank's process during the step itself.
    """

    kind: str
    messages: tuple[int, ...]
    sent_bytes: tuple[int, ...]
    told_bytes: int
    dense_bytes: int
    route_ms: float
    step_ms: float


def run_gang(folder: Path, num_ranks: int, placement: str, rows: int, steps: int) -> list[Any]:
    """Train on `num_ranks` ranks; return the `Step`s of each rank.

    Raises:
        RuntimeError: A rank failed; it has written its error to stderr.
    """
    name = f"{placement}-{num_ranks}"
    children = []
    for rank in range(num_ranks):
        child = os.fork()
        if child == 0:
            _live(folder, name, rank, num_ranks, placement, rows, steps)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    told = []
    for rank in range(num_ranks):
        path = folder / f"{name}-{rank}.json"
        if not path.exists():
            raise RuntimeError(f"rank {rank} of {num_ranks} failed")
        told.append([_read(step) for step in json.loads(path.read_text())])
    return told


def _read(step: dict[str, Any]) -> Step:
    read = Step(**step)
    return replace(read, messages=tuple(read.messages), sent_bytes=tuple(read.sent_bytes))


def _live(
    folder: Path, name: str, rank: int, num_ranks: int, placement: str, rows: int, steps: int
) -> None:
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(str(folder / f"{name}.store"), num_ranks)
        group = counted_group(store, rank, num_ranks)
        told = train(group, rank, num_ranks, placement, rows, steps)
        path = folder / f"{name}-{rank}.json"
        path.with_suffix(".part").write_text(json.dumps([asdict(step) for step in told]))
        path.with_suffix(".part").rename(path)
        dist.barrier()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # gloo's threads sometimes abort during a normal exit


def train(
    group: CountedGroup,
    rank: int,
    num_ranks: int,
    placement: str,
    rows: int,
    steps: int,
) -> list[Step]:
    """Return `steps` steps of each kind; an additional first step of each kind is not counted."""
    peers = Peers(rank, num_ranks)
    step = new_step(placement, peers)
    told = []
    for number in range(steps + 1):
        for kind in KINDS:
            batch = batch_of(rows if kind == "full" else 0, seed=1_000 * number + rank)
            total = num_ranks * rows if kind == "full" else 1
            taken = one_step(step, batch, total, kind, group)
            if number:
                told.append(taken)
    return told


def one_step(step: TrainStep, batch: Batch, total: int, kind: str, group: CountedGroup) -> Step:
    """Take a step and return its counts and times."""
    group.reset()
    began_s = time.process_time()
    route = step.model.embeddings.route(batch.categorical)
    routed_s = time.process_time()
    of_route = group.messages, group.sent_bytes
    group.reset()
    step(batch, total, 0.01, PhaseClock(), route)
    ended_s = time.process_time()
    size = group.size()
    grads = step.dense.optimizer.vector.grad
    dense = 0 if grads is None else grads.nbytes
    return Step(
        kind,
        (group.messages, of_route[0]),
        (group.sent_bytes, of_route[1]),
        route.traffic.sent_bytes,
        round(2 * (size - 1) / size * dense),
        1e3 * (routed_s - began_s),
        1e3 * (ended_s - routed_s),
    )


def new_step(placement: str, peers: Peers) -> TrainStep:
    """Return the training step of an MLP over 26 tables."""
    schema = Schema(
        tuple(
            ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality=cardinality)
            for name, cardinality in zip(NAMES, CARDINALITIES, strict=True)
        )
        + tuple(ColumnSchema(name, "float32", (Tags.CONTINUOUS,)) for name in NUMBER_NAMES)
    )
    model = build_model(
        schema,
        MlpSpec(kind="mlp", embedding_dim=DIM, hidden=[64, 64]),
        seed=1,
        make_tables=lambda columns, *, generator: EmbeddingCollection(
            columns, placements=PLACEMENTS[placement], peers=peers, generator=generator
        ),
    )
    train = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
    return TrainStep(model, train, peers.num_ranks)


def batch_of(rows: int, seed: int) -> Batch:
    """Return a batch with ids by a power law, random values and labels."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(CARDINALITIES).float()
    ids = sizes ** torch.rand(rows, COLUMNS, generator=draw) - 1
    values = torch.randn(rows, NUMBERS, generator=draw)
    labels = torch.randint(0, 2, (rows,), generator=draw).float()
    return Batch(ids.int().clamp(min=0), values, labels, NAMES, NUMBER_NAMES)


def of_kind(told: list[list[Step]], kind: str) -> list[Step]:
    """Return the steps of one kind on all ranks."""
    return [step for rank in told for step in rank if step.kind == kind]


def median_ms(steps: Sequence[Step], part: str) -> float:
    """Return the median of `route_ms` or `step_ms`."""
    return float(statistics.median(getattr(step, part) for step in steps))
