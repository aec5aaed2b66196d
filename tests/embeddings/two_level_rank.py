"""The real gloo ranks of `test_two_level.py`, run as a script: FOLDER."""

import sys
from pathlib import Path

import torch
from gloo_ranks import run_gangs
from torch import distributed as dist

from distrain.batch import Ragged
from distrain.embeddings import (
    EmbeddingCollection,
    Peers,
    SparseOptimizer,
    TableColumn,
    canonical_state,
    canonical_weights,
    process_groups,
)

# Number of ranks: sizes of groups; all but the first gang have some between one rank and all.
SIZES = {2: (1, 2), 4: (1, 2, 4), 6: (3,), 8: (2,)}
# One table has fewer rows than ranks, one is shared, two columns are lists.
COLUMNS = [
    TableColumn("user", 101, 4),
    TableColumn("few", 3, 4),
    TableColumn("seen", 40, 4, "mean", table="item"),
    TableColumn("item", 40, 4, table="item"),
    TableColumn("shop", 9, 2),
    TableColumn("tags", 17, 8, "sum"),
]
FLAT = [column for column in COLUMNS if column.combiner is None]
LISTS = [column for column in COLUMNS if column.combiner is not None]
# Beside two-level tables of a width there may be others.
MIXED = ["two_level", "replicated", "row_wise", "row_wise", "two_level", "two_level"]
DTYPES = {"adam": torch.float32, "sgd": torch.bfloat16}
STEPS, LR = 4, 0.1


def peers_of(rank, num_ranks, size):
    return Peers(rank, num_ranks).in_groups(size, process_groups(size))


def counts_of(step, num_ranks):
    """How many rows each rank has: odd numbers, none for some, all for the last, none at all."""
    if step == 2:
        return [23 if rank == num_ranks - 1 else 0 for rank in range(num_ranks)]
    if step == 3:
        return [0] * num_ranks
    return [(7 * rank + 5 * step) % 9 for rank in range(num_ranks)]


def batch_of(step, rank, num_ranks):
    """Ids `[rows, flat columns]`, and lists."""
    rows = counts_of(step, num_ranks)[rank]
    draw = torch.Generator().manual_seed(100 * step + rank)

    def ids(column, count):
        return torch.randint(0, column.cardinality, (count,), generator=draw, dtype=torch.int32)

    lists = {}
    for column in LISTS:
        offsets = torch.zeros(rows + 1, dtype=torch.int32)
        offsets[1:] = torch.randint(0, 4, (rows,), generator=draw).cumsum(0)
        lists[column.name] = Ragged(ids(column, int(offsets[-1])), offsets)
    return torch.stack([ids(column, rows) for column in FLAT], 1), lists


def train(placements, kind, peers):
    """All steps; the whole tables and the optimizer's state, and losses."""
    tables = EmbeddingCollection(
        COLUMNS,
        placements=placements,
        peers=peers,
        generator=torch.Generator().manual_seed(1),
        dtype=DTYPES[kind],
    )
    optimizer = SparseOptimizer(tables, kind)
    losses = []
    for step in range(STEPS):
        route = tables.route(*batch_of(step, peers.rank, peers.num_ranks))
        leaves = tables.expand(route, tables.fetch(route))
        loss = sum(((leaf - 0.3) ** 2).sum() for leaf in leaves)
        losses.append(loss.detach().double())
        loss.backward()
        sums = tables.collect(route, [leaf.grad for leaf in leaves])
        optimizer.apply(tables.exchange(route, sums), LR, scale=1 / peers.num_ranks)
    total = torch.stack(losses)
    dist.all_reduce(total)
    return {"losses": total} | {
        name: tensor.read(slice(0, tensor.shape[0]), everywhere=True).clone()
        for name, tensor in (canonical_weights(tables) | canonical_state(optimizer)).items()
    }


def exchanged(peers):
    """What one exchange gave this rank, and what the loops below say, store by store."""
    tables = EmbeddingCollection(
        COLUMNS, placements=["two_level"] * len(COLUMNS), peers=peers, dtype=torch.float32
    )
    route = tables.route(*batch_of(1, peers.rank, peers.num_ranks))
    draw = torch.Generator().manual_seed(peers.rank)
    sums = [
        torch.randn(own.num_distinct, store.dim, generator=draw)
        for own, store in zip(route.stores, tables.stores, strict=True)
    ]
    told = []
    for number, rows in enumerate(tables.exchange(route, sums)):
        own = route.stores[number].rows.within
        size = peers.levels.within.num_ranks
        # Of each distinct row that this rank asked for: its key. They stand by owner.
        local = torch.cat([torch.full((n,), owner) for owner, n in enumerate(own.asked)])
        asked = exchanged_keys(peers, own, local, size)
        ours = dict(zip((rows.keys * size + peers.rank % size).tolist(), rows.grads, strict=True))
        told.append((ours, naive(peers, asked, sums[number], size)))
    return [
        {
            "keys": sorted(ours),
            "expected": sorted(oracle),
            "grads": stack(ours),
            "sums": stack(oracle),
        }
        for ours, oracle in told
    ]


def stack(of_key):
    rows = [of_key[key] for key in sorted(of_key)]
    return torch.stack(rows) if rows else torch.zeros(0)


def exchanged_keys(peers, own, owners, size):
    """The key of each of this rank's distinct rows, in their order."""
    # Owners say which rows they were asked for; each asker takes back its part.
    answers = [None] * size
    dist.all_gather_object(
        answers, torch.split(own.requested, list(own.wanted)), group=peers.levels.within.group
    )
    local = torch.cat([answer[peers.rank % size] for answer in answers])
    keys = torch.empty_like(local)
    keys[own.by_owner] = local * size + owners
    return keys


def naive(peers, keys, sums, size):
    """Row by row: each group's sums in the order of ranks, then the groups' in theirs."""
    everybodys = [None] * peers.num_ranks
    dist.all_gather_object(everybodys, (keys.tolist(), sums))
    totals = {}
    for first in range(0, peers.num_ranks, size):
        of_group = {}
        for its_keys, its_sums in everybodys[first : first + size]:
            for key, row in zip(its_keys, its_sums, strict=True):
                of_group[key] = of_group.get(key, torch.zeros_like(row)) + row
        for key, row in of_group.items():
            totals[key] = totals.get(key, torch.zeros_like(row)) + row
    return {key: row for key, row in totals.items() if key % size == peers.rank % size}


def results(rank, num_ranks):
    """What a rank ends with, for each size of groups, placement and optimizer."""
    told = {}
    width = len(COLUMNS)
    for kind in DTYPES:
        told["replicated", kind] = train(["replicated"] * width, kind, Peers(rank, num_ranks))
    for size in SIZES[num_ranks]:
        peers = peers_of(rank, num_ranks, size)
        told["exchange", size] = exchanged(peers)
        for kind in DTYPES:
            told[size, kind] = train(["two_level"] * width, kind, peers)
        told["mixed", size] = train(MIXED, "adam", peers)
    return told


if __name__ == "__main__":
    run_gangs(Path(sys.argv[1]), SIZES, results)
