"""The real gloo ranks of `test_weighted_step.py`."""

from dataclasses import replace

import torch

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers
from distrain.models.heads import BinaryClassificationTask, MultiTask, RegressionTask
from distrain.schema import ColumnSchema, Schema
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

GANGS = (2, 4)
SGD = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
TARGETS = ("clicked", "price")
COLUMNS = Schema(
    (
        ColumnSchema("user", "int32", ("categorical",), cardinality=30, embedding_dim=4),
        ColumnSchema("age", "float32", ("continuous",)),
    )
)


def make_model(rank=0, num_ranks=1, tasks=TARGETS, own=False):
    """A click and a price over one body, in float64; the price may have weights of its own."""
    weight = "own" if own else None
    known = {
        "clicked": BinaryClassificationTask("clicked"),
        "price": RegressionTask("price", "huber", weight=weight),
    }

    def tables(columns, *, generator):
        peers = Peers(rank, num_ranks)
        return EmbeddingCollection(columns, peers=peers, generator=generator, dtype=torch.float64)

    head = MultiTask(
        {name: known[name] for name in tasks}, {"price": 0.5} if len(tasks) > 1 else {}
    )
    blueprint = Blueprint(InputBlock(COLUMNS, Embeddings(None)), MLPBlock([5]), head)
    model = blueprint.build(seed=1, make_tables=tables)
    model.dense.double()
    return model


def rows_of(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    clicked = torch.randint(2, (count,), generator=generator).double()
    price = 3 * torch.randn(count, generator=generator, dtype=torch.float64)
    labels = torch.stack([clicked, price], 1)
    ids = torch.randint(30, (count, 1), generator=generator, dtype=torch.int32)
    numbers = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    return Batch(ids, numbers, labels[:, 0], ("user",), ("age",), labels, TARGETS)


def weighted(batch, of_rows, own):
    return replace(
        batch,
        weight=None if of_rows is None else of_rows.double(),
        task_weights=None if own is None else own.double()[:, None],
        task_weight_names=() if own is None else ("own",),
    )


def taken(batch, rows):
    labels = batch.labels[rows]
    return replace(
        batch,
        categorical=batch.categorical[rows],
        continuous=batch.continuous[rows],
        label=labels[:, 0],
        labels=labels,
    )


def train_all(rank, num_ranks):
    """The parameters after some steps, of which this rank has every so manieth row."""
    step = TrainStep(make_model(rank, num_ranks, own=True), SGD, num_ranks)
    for number, count in enumerate((24, 3, 10, 12)):
        whole = rows_of(count, seed=number)
        weights = (torch.arange(count) + number) % 4  # of 2 and 4 ranks, one may have zeros alone
        batch = weighted(whole, weights, weights.flip(0))
        own = torch.arange(rank, count, num_ranks)
        part = taken(batch, own)
        part = weighted(part, batch.weight[own], batch.task_weights[own, 0])
        step(part, count, 0.3, PhaseClock())
    parameters = (*step.model.embeddings.weights, *step.model.dense.parameters())
    return [parameter.detach().clone() for parameter in parameters]
