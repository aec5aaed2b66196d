"""The real gloo ranks of `test_retrieval_step.py`."""

from dataclasses import replace
from functools import partial

import torch

from distrain.jobs.spec import TrainSpec
from distrain.jobs.spec.models.kinds import SasrecRetrievalSpec, TwoTowerSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.models.embeddings import EmbeddingCollection, Peers
from distrain.schema import ColumnSchema, Schema
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

GANGS = (2, 3)
SGD = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
towers = partial(TwoTowerSpec, task="retrieval", embedding_dim=4, tower=(5, 4))
KINDS = (
    towers(log_q="stream"),
    towers(loss="bpr"),
    towers(log_q="batch", normalize=True),
    SasrecRetrievalSpec(embedding_dim=4, max_length=3, every_event=True, log_q="batch"),
    towers(negatives="popularity", num_negatives=3),
)
SCHEMA = Schema(
    (
        ColumnSchema("bought", "float32", ("target",)),
        ColumnSchema("user", "int32", ("categorical", "user_id"), cardinality=6),
        ColumnSchema("item", "int32", ("categorical", "item_id"), cardinality=9),
        ColumnSchema(
            "seen", "int32", ("categorical",), 9, is_list=True, properties={"domain": "item"}
        ),
    )
)


def make_model(spec, rank=0, num_ranks=1):
    """A model of retrieval in float64."""

    def tables(columns, *, generator):
        peers = Peers(rank, num_ranks)
        return EmbeddingCollection(columns, peers=peers, generator=generator, dtype=torch.float64)

    model = build_model(SCHEMA, spec, seed=1, make_tables=tables)
    model.dense.double()
    return model


def rows_of(count, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(n, (count,), generator=generator, dtype=torch.int32) for n in (6, 9)]
    label = (torch.rand(count, generator=generator) < 0.8).double()
    none = torch.zeros(count, 0, dtype=torch.float64)
    # A row has as many events as its number's rest by 5.
    ends = [0, *(torch.arange(count) % 5).cumsum(0).tolist()]
    seen = torch.randint(9, (ends[-1],), generator=generator, dtype=torch.int32)
    lists = {"seen": Ragged(seen, torch.tensor(ends, dtype=torch.int32))}
    return Batch(torch.stack(ids, 1), none, label, ("user", "item"), (), lists=lists, key=seed)


def part_of(whole, rows):
    seen = [whole.lists["seen"].part(slice(row, row + 1)).values for row in rows.tolist()]
    ends = torch.tensor([0, *map(len, seen)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    values = torch.cat(seen) if seen else ends[:0]
    return replace(
        whole,
        categorical=whole.categorical[rows],
        continuous=whole.continuous[rows],
        label=whole.label[rows],
        lists={"seen": Ragged(values, ends)},
    )


def trained(spec, rank=0, num_ranks=1):
    """The state after some steps, of which this rank has every so manieth row, and the losses."""
    step = TrainStep(make_model(spec, rank, num_ranks), SGD, num_ranks)
    losses = []
    for number, count in enumerate((24, 1, 10, 13)):
        part = part_of(rows_of(count, seed=number), torch.arange(count)[rank::num_ranks])
        losses.append(step(part, count, 0.3, PhaseClock())[1].detach())
    state = (*step.model.embeddings.weights, *step.model.dense.state_dict().values())
    return [tensor.detach().clone() for tensor in state], torch.stack(losses)


def train_all(rank, num_ranks):
    return [trained(spec, rank, num_ranks) for spec in KINDS]
