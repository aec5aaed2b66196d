"""The two real gloo ranks of `test_fixed.py`, run as a script: FOLDER."""

import sys
from pathlib import Path

import torch
from gloo_ranks import run_gangs

from distrain.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.embeddings.fixed import FixedTables

COLUMNS = [TableColumn("a", 50, 4), TableColumn("b", 3, 4), TableColumn("c", 9, 2)]
# Each rank's rows in each step: even, uneven, one rank empty, all of them.
ROWS = [(12, 12), (5, 7), (12, 0), (0, 1), (0, 0), (9, 12)]


def train(kind, peers, *, is_fixed):
    """All steps; returns the weights."""
    tables = EmbeddingCollection(COLUMNS, peers=peers, generator=torch.Generator().manual_seed(1))
    optimizer = SparseOptimizer(tables, kind)
    fixed = FixedTables(tables, optimizer, 12)
    generator = torch.Generator().manual_seed(peers.rank)
    for rows in ROWS:
        own = rows[peers.rank]
        ids = [torch.randint(0, c.cardinality, (own,), generator=generator) for c in COLUMNS]
        ids = torch.stack(ids).to(torch.int32).T
        # Groups are ordered by width: c, then a and b.
        grads = [torch.randn(own, *s, generator=generator) for s in ((1, 2), (2, 4))]
        if is_fixed:
            route = fixed.route(ids)
            fixed.update(route, grads, 0.1, 0.5)
        else:
            route = tables.route(ids)
            optimizer.apply(tables.exchange(route, tables.collect(route, grads)), 0.1, scale=0.5)
    return [weight.detach() for weight in tables.weights]


def results(rank, num_ranks):
    """The weights that a rank ends with, for each way to step."""
    peers = Peers(rank, num_ranks)
    return {
        name: [
            weight
            for kind in ("sgd", "adagrad", "rowwise_adagrad", "adam")
            for weight in train(kind, peers, is_fixed=name == "fixed")
        ]
        for name in ("fixed", "dynamic")
    }


if __name__ == "__main__":
    run_gangs(Path(sys.argv[1]), [2], results)
