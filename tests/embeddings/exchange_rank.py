"""One real gloo rank of `test_exchange.py`, run as a script: RANK NUM_RANKS FOLDER."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from distrain.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn, exchange_rows

COLUMNS = [TableColumn("a", 50, 4), TableColumn("b", 3, 4), TableColumn("c", 9, 2)]
KINDS = ("sgd", "adagrad", "adam")
# Shares of 12ths of each global batch that ranks get: even, uneven, one rank empty, all the others.
SHARES = {1: [(12,)] * 5, 2: [(6, 6), (5, 7), (12, 0), (1, 11), (0, 12)]}
SHARES[3] = [(4, 4, 4), (5, 0, 7), (0, 12, 0), (1, 1, 10), (0, 0, 12)]
LR = 0.1


class Dense(nn.Module):
    """A dense part so small that the tables' share of the result shows."""

    def __init__(self):
        super().__init__()
        self.logit = nn.Linear(10, 1, dtype=torch.float64)

    def forward(self, embedded):
        return self.logit(torch.cat([values.flatten(1) for values in embedded], dim=1)).squeeze(1)


def global_batches(num_ranks):
    """Ids `[rows, 3]`, labels `[rows]`, and how many rows each rank gets, for each step."""
    generator = torch.Generator().manual_seed(7)
    for step, shares in enumerate(SHARES[num_ranks]):
        unit = 3 + step
        ids = [torch.randint(0, c.cardinality, (12 * unit,), generator=generator) for c in COLUMNS]
        labels = torch.randint(0, 2, (12 * unit,), generator=generator, dtype=torch.float64)
        yield torch.stack(ids).to(torch.int32).T, labels, [share * unit for share in shares]
    empty = torch.zeros(0, 3, dtype=torch.int32)
    yield empty, torch.zeros(0, dtype=torch.float64), [0] * num_ranks


def train(kind, rank, num_ranks):
    """All steps of a small model; returns every parameter."""
    torch.manual_seed(0)
    tables = EmbeddingCollection(
        COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    dense = Dense()
    step_dense = DistributedDataParallel(dense) if num_ranks > 1 else dense
    optimizer = SparseOptimizer(tables, kind)
    dense_optimizer = torch.optim.SGD(dense.parameters(), lr=LR)
    for ids, labels, counts in global_batches(num_ranks):
        mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        keys = tables.keys(ids[mine])
        embedded = tables.gather(keys)
        losses = nn.functional.binary_cross_entropy_with_logits(
            step_dense(embedded), labels[mine], reduction="sum"
        )
        dense_optimizer.zero_grad()
        (losses * num_ranks / max(1, len(labels))).backward()
        optimizer.step(keys, tuple(e.grad for e in embedded), LR, exchange_scale=1 / num_ranks)
        dense_optimizer.step()
    return [*tables.weights, *dense.parameters()]


def partial_sums(rank):
    """Keys and fp32 sums of a rank as `merge_rows` would give them; most keys are everybody's."""
    generator = torch.Generator().manual_seed(rank)
    count = 50 + rank
    keys = torch.randperm(60, generator=generator)[:count].sort().values
    return keys, torch.randn(count, 3, generator=generator)


def main(rank, num_ranks, folder):
    store = dist.FileStore(str(folder / "store"), num_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=60)
    )
    results = {kind: train(kind, rank, num_ranks) for kind in KINDS}
    results["exchanged"] = list(exchange_rows(*partial_sums(rank)))
    torch.save({k: [v.detach() for v in vs] for k, vs in results.items()}, folder / f"{rank}.part")
    (folder / f"{rank}.part").rename(folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(0)
