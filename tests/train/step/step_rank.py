"""The real gloo ranks of `test_step_ranks.py`."""

from unittest import mock

import torch
from click_models import model_over

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.train.step import gradient_buckets
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

COLUMNS = [TableColumn("a", 50, 4), TableColumn("b", 64, 4), TableColumn("c", 70, 2)]
NAMES, NUMBERS = ("a", "b", "c"), ("x", "y", "z", "w")
# Shares of 12ths of each global batch that ranks get: even, uneven, one rank empty, all the others.
SHARES = {2: [(6, 6), (5, 7), (12, 0), (1, 11), (0, 12)]}
SHARES[3] = [(4, 4, 4), (5, 0, 7), (0, 12, 0), (1, 1, 10), (0, 0, 12)]
LR = 0.1

DOUBLE, SINGLE = torch.float64, torch.float32
# name: (dtype, placement of the tables, the spec's train section)
CASES = {
    "adam": (DOUBLE, "replicated", {"optimizer": {"kind": "adam"}}),
    "clipped": (DOUBLE, "replicated", {"clip_grad_norm": 0.02}),
    "clipped, row-wise": (DOUBLE, "row_wise", {"clip_grad_norm": 0.02}),
    "slices": (DOUBLE, "row_wise", {"micro_batches": 3, "optimizer": {"kind": "rowwise_adagrad"}}),
    "bf16": (SINGLE, "replicated", {"precision": "bf16", "optimizer": {"kind": "sgd"}}),
}
DISTINCT_ROWS = 48


def make_step(dtype, placement, train, rank=0, num_ranks=1):
    """A small model and its step; the dense parts of ranks begin with different values."""
    tables = EmbeddingCollection(
        COLUMNS,
        placements=[placement] * 3,
        peers=Peers(rank, num_ranks),
        generator=torch.Generator().manual_seed(1),
        dtype=dtype,
    )
    torch.manual_seed(rank)  # making the step gives all of them rank 0's
    model = model_over(tables, MLPBlock([8]), NUMBERS)
    model.dense.to(dtype)
    spec = TrainSpec.model_validate({"optimizer": {"kind": "adagrad"}, **train})
    return TrainStep(model, spec, num_ranks)


def batch_of(ids, dtype, generator):
    rows = len(ids)
    return Batch(
        ids.to(torch.int32),
        torch.randn(rows, 4, generator=generator, dtype=dtype),
        torch.randint(0, 2, (rows,), generator=generator).to(dtype),
        NAMES,
        NUMBERS,
    )


def global_batches(num_ranks, dtype):
    """Batches, and how many of their rows each rank gets, for each step."""
    generator = torch.Generator().manual_seed(7)
    for step, shares in enumerate(SHARES[num_ranks]):
        unit = 3 + step
        ids = [torch.randint(0, c.cardinality, (12 * unit,), generator=generator) for c in COLUMNS]
        yield batch_of(torch.stack(ids, 1), dtype, generator), [share * unit for share in shares]


def distinct_batches(num_ranks, dtype=SINGLE):
    """Like `global_batches`, but no rank meets an id of a column twice in a step."""
    generator = torch.Generator().manual_seed(8)
    for _ in range(4):
        ids = [
            torch.stack(
                [
                    torch.randperm(c.cardinality, generator=generator)[:DISTINCT_ROWS]
                    for c in COLUMNS
                ],
                dim=1,
            )
            for _ in range(num_ranks)
        ]
        yield batch_of(torch.cat(ids), dtype, generator), [DISTINCT_ROWS] * num_ranks


def part_of(batch, part):
    return Batch(batch.categorical[part], batch.continuous[part], batch.label[part], NAMES, NUMBERS)


def train(step, batches, rank=0, num_ranks=1):
    """All steps; returns the parameters, then logits and losses of this rank's rows."""
    told = []
    for number, (batch, counts) in enumerate(batches):
        mine = slice(None)
        if num_ranks > 1:
            mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        route = None
        own = part_of(batch, mine)
        if number % 2:  # made ahead or not: no difference
            route = step.model.embeddings.route(own.categorical)
        (logits,), loss_sum = step(own, batch.num_rows, LR / (1 + number), PhaseClock(), route)
        assert not logits.requires_grad
        assert not loss_sum.requires_grad
        told.append((logits, loss_sum))
    return {
        "dense": [p.detach().clone() for p in step.model.dense.parameters()],
        "tables": [w.detach().clone() for w in step.model.embeddings.weights],
        "logits": [logits for logits, _ in told],
        "losses": [loss for _, loss in told],
    }


def train_case(name, rank=0, num_ranks=1, shared_by=None):
    """One of `CASES`; `shared_by` ranks see the batches of so many."""
    dtype, placement, spec = CASES[name]
    step = make_step(dtype, placement, spec, rank, num_ranks)
    return train(step, global_batches(shared_by or num_ranks, dtype), rank, num_ranks)


def train_distinct(kind, rank=0, num_ranks=1, slices=1):
    """fp32 training on `distinct_batches`, of which one process takes all ranks' rows in slices."""
    spec = {"optimizer": {"kind": kind}, "micro_batches": slices}
    step = make_step(SINGLE, "replicated", spec, rank, num_ranks)
    return train(step, distinct_batches(max(num_ranks, slices)), rank, num_ranks)


def results(rank, num_ranks):
    """Return the results of a rank of a gang by case; small models need several buckets."""
    with mock.patch.object(gradient_buckets, "LEAST_BYTES", 256):
        distinct = {f"distinct {k}": train_distinct(k, rank, num_ranks) for k in ("sgd", "adagrad")}
        return {name: train_case(name, rank, num_ranks) for name in CASES} | distinct
