"""The real gloo ranks of `test_retrieval_step.py`, run as a script: FOLDER."""

import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch._dynamo  # torch's optimizers import it, which takes long: once, before the forks
from gloo_ranks import run_gangs

from distrain.batch import Batch
from distrain.embeddings import EmbeddingCollection, Peers
from distrain.models import build_model
from distrain.schema import ColumnSchema, Schema
from distrain.spec import TrainSpec, TwoTowerSpec
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

GANGS = (2, 3)
SGD = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
KINDS = ({"log_q": "stream"}, {"loss": "bpr"}, {"log_q": "batch", "normalize": True})
SCHEMA = Schema(
    (
        ColumnSchema("bought", "float32", ("target",)),
        ColumnSchema("user", "int32", ("categorical", "user_id"), cardinality=6),
        ColumnSchema("item", "int32", ("categorical", "item_id"), cardinality=9),
    )
)


def make_model(options, rank=0, num_ranks=1):
    """Two towers in float64."""

    def tables(columns, *, generator):
        peers = Peers(rank, num_ranks)
        return EmbeddingCollection(columns, peers=peers, generator=generator, dtype=torch.float64)

    spec = TwoTowerSpec(task="retrieval", embedding_dim=4, tower=(5, 4), **options)
    model = build_model(SCHEMA, spec, seed=1, make_tables=tables)
    model.dense.double()
    return model


def rows_of(count, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(n, (count,), generator=generator, dtype=torch.int32) for n in (6, 9)]
    label = (torch.rand(count, generator=generator) < 0.8).double()
    none = torch.zeros(count, 0, dtype=torch.float64)
    return Batch(torch.stack(ids, 1), none, label, ("user", "item"), ())


def trained(options, rank=0, num_ranks=1):
    """The state after some steps, of which this rank has every so manieth row, and the losses."""
    step = TrainStep(make_model(options, rank, num_ranks), SGD, num_ranks)
    losses = []
    for number, count in enumerate((24, 1, 10, 13)):
        whole = rows_of(count, seed=number)
        own = torch.arange(count)[rank::num_ranks]
        part = replace(whole, categorical=whole.categorical[own], label=whole.label[own])
        part = replace(part, continuous=whole.continuous[own])
        losses.append(step(part, count, 0.3, PhaseClock())[1].detach())
    state = (*step.model.embeddings.weights, *step.model.dense.state_dict().values())
    return [tensor.detach().clone() for tensor in state], torch.stack(losses)


def train_all(rank, num_ranks):
    return [trained(options, rank, num_ranks) for options in KINDS]


if __name__ == "__main__":
    run_gangs(Path(sys.argv[1]), GANGS, train_all)
