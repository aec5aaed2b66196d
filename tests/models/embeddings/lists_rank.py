"""The real gloo ranks of `test_lists_ranks.py`."""

from itertools import product

import torch
from torch import distributed as dist

from distrain.loader.batch import Ragged
from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.row_owners import owner_and_row

COLUMNS = [
    TableColumn("tags", 30, 4, "mean"),
    TableColumn("user", 40, 4),
    TableColumn("words", 9, 4, "sum"),
    TableColumn("shop", 11, 8),
    TableColumn("only", 1, 8, "mean"),
    TableColumn("alone", 6, 2, "sum"),
    TableColumn("roots", 20, 4, "sqrtn"),
    TableColumn("seen", 30, 4, "sequence", table="tags"),
    TableColumn("acts", 15, 2, "sequence"),
    TableColumn("pages", 15, 3, "sequence"),
    TableColumn("liked", 30, 4, table="tags"),
]
MIXED = [
    *("row_wise", "replicated", "replicated", "row_wise", "row_wise", "row_wise"),
    *("replicated", "row_wise", "row_wise", "replicated", "row_wise"),
]
PLACEMENTS = {
    "replicated": ["replicated"] * 11,
    "row_wise": ["row_wise"] * 11,
    "mixed": MIXED,
    "cached": [*MIXED[:3], "host_cached", *MIXED[4:]],
}
KINDS = ("sgd", "adam")  # `test_kernel_updates.py` and `test_sparse_optimizer.py` have all
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
# How many rows each of up to three ranks gets in each step, and how long their lists are at most:
# a rank may have no rows, and rows none but empty lists.
SHARES = [((6, 5, 7), (4, 4, 4)), ((9, 0, 3), (3, 3, 0)), ((4, 4, 4), (0, 5, 2))]
SHARES += [((2, 8, 0), (0, 0, 0)), ((0, 0, 0), (3, 3, 3)), ((7, 1, 5), (6, 2, 4))]
NUM_RANKS = (2, 3)
LR = 0.1


def cases():
    """What every gang trains: dtype, optimizer and placement."""
    yield from product(["fp32"], KINDS, PLACEMENTS)
    yield from product(["fp64"], KINDS, ["replicated", "row_wise"])
    yield from product(["bf16"], ["adam"], ["replicated", "row_wise"])


def batch_of(rank, step):
    """A rank's flat ids and lists."""
    shares, most = SHARES[step]
    generator = torch.Generator().manual_seed(10 * step + rank)
    num_rows = shares[rank]
    flat, lists = [], {}
    for column in COLUMNS:
        if column.combiner is None:
            flat.append(torch.randint(0, column.cardinality, (num_rows,), generator=generator))
            continue
        lengths = torch.randint(0, most[rank] + 1, (num_rows,), generator=generator)
        offsets = torch.zeros(num_rows + 1, dtype=torch.int32)
        offsets[1:] = lengths.cumsum(0)
        ids = torch.randint(0, column.cardinality, (int(lengths.sum()),), generator=generator)
        lists[column.name] = Ragged(ids.int(), offsets)
    return torch.stack(flat).int().T, lists


def joined(batches):
    """The batches of several ranks as one."""
    lists = {}
    for name in batches[0][1]:
        lengths = torch.cat([lists[name].lengths for _, lists in batches])
        ends = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).int()])
        lists[name] = Ragged(torch.cat([lists[name].values for _, lists in batches]), ends)
    return torch.cat([ids for ids, _ in batches]), lists


def train(dtype, kind, placement, rank, num_ranks, together=1):
    """All steps; returns the tables. One process may train on the rows of several ranks."""
    tables = EmbeddingCollection(
        COLUMNS,
        placements=PLACEMENTS[placement],
        peers=Peers(rank, num_ranks),
        generator=torch.Generator().manual_seed(1),
        dtype=DTYPES[dtype],
        cache_bytes=10 * 8 * 4,
    )
    optimizer = SparseOptimizer(tables, kind)
    for step in range(len(SHARES)):
        ids, lists = joined([batch_of(rank + other, step) for other in range(together)])
        route = tables.route(ids, lists)
        embedded = tables.expand(route, tables.fetch(route))
        sum(torch.sin(3 * values + 1).sum() for values in embedded).backward()
        sums = tables.collect(route, [leaf.grad for leaf in embedded])
        optimizer.apply(tables.exchange(route, sums), LR)
    tables.apply_factor()
    return {column.name: whole_table(tables, column.name, num_ranks) for column in COLUMNS}


def whole_table(tables, name, num_ranks):
    """A table with the rows of all ranks."""
    number, keys = tables.keys_of_table(name)
    store, local = tables.stores[number], tables.weights[number].data
    if store.placement == "replicated":
        return local[keys].clone()
    padded = local.new_zeros(-(-store.num_rows // num_ranks), store.dim)
    padded[: len(local)] = local
    parts = [torch.empty_like(padded) for _ in range(num_ranks)]
    dist.all_gather(parts, padded)
    own = torch.arange(keys.start, keys.stop)
    return torch.stack(parts)[owner_and_row(own, num_ranks)]


def results(rank, num_ranks):
    """The tables that a rank of a gang ends with, for each case."""
    return {"-".join(case): train(*case, rank=rank, num_ranks=num_ranks) for case in cases()}
