"""The real gloo ranks of `test_graphed_step.py`."""

from dataclasses import replace

import torch
from click_models import model_over
from played_graph import PlayedGraph
from torch import distributed as dist

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.models.embeddings.row_owners import key_at
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

COLUMNS = [TableColumn("a", 4000, 4), TableColumn("b", 3, 4), TableColumn("c", 70, 2)]
NAMES, NUMBERS = ("a", "b", "c"), ("x", "y")
MOST_ROWS = 64
# Ranks replay at different steps: sizes come in another order on each. One batch is empty.
SIZES = [(64, 64, 20, 64)] * 4 + [(0, 20, 64, 0)] + [(20, 64, 64, 9)] * 5
SKEWED = 5
"""The step of which rank 0 has all of the first column's rows, more than anybody had space for."""

GANGS = {2: ("row_wise", "mixed"), 4: ("row_wise",)}
"""Which cases ranks of each number run."""

# name: (placement of the columns, the spec's train section)
CASES = {
    "row_wise": (("row_wise",) * 3, {"optimizer": {"kind": "adam"}, "clip_grad_norm": 0.02}),
    "mixed": (("row_wise", "replicated", "row_wise"), {"optimizer": {"kind": "adagrad"}}),
}


def batches(rank, num_ranks):
    generator = torch.Generator().manual_seed(rank)
    for number, sizes in enumerate(SIZES):
        rows = sizes[rank]
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        if number == SKEWED:
            ids[0] = key_at(torch.arange(rows), 0, num_ranks)
        yield Batch(
            torch.stack(ids).to(torch.int32).T,
            torch.randn(2, rows, generator=generator).T,
            torch.randint(0, 2, (rows,), generator=generator).float(),
            NAMES,
            NUMBERS,
        )


def make_model(placements, peers):
    tables = EmbeddingCollection(
        COLUMNS,
        placements=placements,
        peers=peers,
        generator=torch.Generator().manual_seed(1),
        dtype=torch.bfloat16,
    )
    torch.manual_seed(peers.rank)  # making the step gives all of them rank 0's
    return model_over(tables, MLPBlock([8]), NUMBERS)


def train(step, rank, num_ranks, make_route=None):
    """What the steps returned, and every parameter after them."""
    step.dense.splits = False  # as on a GPU
    told = []
    for number, batch in enumerate(batches(rank, num_ranks)):
        rate = 0.1 / (1 + number)  # another one in each step
        route = make_route(batch) if make_route and number % 2 else None
        rows = sum(SIZES[number][:num_ranks])
        (logits,), loss = step(batch, max(1, rows), rate, PhaseClock(), route)
        told += [logits.clone(), loss.clone()]
    told += [*step.model.embeddings.weights, *step.model.dense.parameters()]
    return [values.detach() for values in told]


def results(rank, num_ranks):
    """What a rank ends with, eagerly and with played graphs, and how often these were replayed."""
    peers = Peers(rank, num_ranks)
    told = {}
    for name in GANGS[num_ranks]:
        placements, section = CASES[name]
        spec = TrainSpec.model_validate(section)
        eager = train(TrainStep(make_model(placements, peers), spec, num_ranks), rank, num_ranks)
        graphs = []

        def make_graph(graphs=graphs):
            graphs.append(PlayedGraph())
            return graphs[-1]

        model = make_model(placements, peers)
        # Routes made ahead have a process group of their own.
        model.embeddings.route_peers = replace(peers, group=dist.new_group())
        step = GraphedStep(model, spec, num_ranks, MOST_ROWS, make_graph)
        graphed = train(step, rank, num_ranks, step.ask)
        told[name] = {
            "eager": eager,
            "graphed": graphed,
            "replays": [graph.replays for graph in graphs],
        }
    return told
