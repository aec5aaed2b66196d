"""One real gloo rank of `test_fixed.py`, run as a script: RANK NUM_RANKS FOLDER."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

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


def main(rank, num_ranks, folder):
    store = dist.FileStore(str(folder / "store"), num_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=60)
    )
    peers = Peers(rank, num_ranks)
    results = {
        name: [
            weight
            for kind in ("sgd", "adagrad", "rowwise_adagrad", "adam")
            for weight in train(kind, peers, is_fixed=name == "fixed")
        ]
        for name in ("fixed", "dynamic")
    }
    torch.save(results, folder / f"{rank}.part")
    (folder / f"{rank}.part").rename(folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(0)
