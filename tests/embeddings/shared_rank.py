"""The real gloo ranks of `test_shared_ranks.py`."""

from itertools import product

import torch
from ragged_rows import draw_rows_of_ids, ragged
from torch import distributed as dist

from distrain.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.embeddings.dealing import place_of

# "item" is the table of two flat columns and a list, "day" that of two flat ones.
COLUMNS = [
    TableColumn("seen", 30, 4, "sqrtn", table="item"),
    TableColumn("user", 40, 4),
    TableColumn("item", 30, 4),
    TableColumn("from", 7, 2, table="day"),
    TableColumn("liked", 30, 4, table="item"),
    TableColumn("words", 9, 4, "mean"),
    TableColumn("to", 7, 2, table="day"),
]
PLACEMENTS = {
    "replicated": ["replicated"] * 7,
    "row_wise": ["row_wise"] * 7,
    "host_cached": ["host_cached"] * 7,
    "mixed": [
        {"item": "row_wise", "day": "host_cached"}.get(column.table_name, "replicated")
        for column in COLUMNS
    ],
}
KINDS = ("sgd", "adam")  # `exchange_rank.py` has all
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
# How many rows each of up to three ranks gets in each step.
SHARES = [(6, 5, 7), (9, 0, 3), (0, 0, 0), (2, 8, 0), (7, 1, 5)]
NUM_RANKS = (1, 2, 3)
LR = 0.1


def cases():
    """What every gang trains: dtype, optimizer and placement."""
    yield from product(["fp32"], KINDS, PLACEMENTS)
    yield from product(["fp64"], KINDS, ["row_wise"])
    yield from product(["bf16"], ["adam"], ["replicated", "row_wise"])


def rows_of_rank(rank, step):
    """Each column's ids of each row of a rank's batch, as lists."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    num_rows = SHARES[step][rank]
    rows = {}
    for column in COLUMNS:
        most = 4 if column.combiner else 1
        rows[column.name] = draw_rows_of_ids(num_rows, column.cardinality, generator, most)
        if column.combiner is None:
            rows[column.name] = [row or [0] for row in rows[column.name]]
    return rows


def as_batch(rows):
    """The ids of the flat columns, and the lists."""
    flat = [torch.tensor(rows[c.name]).view(-1) for c in COLUMNS if c.combiner is None]
    lists = {c.name: ragged(rows[c.name]) for c in COLUMNS if c.combiner}
    return torch.stack(flat).int().T, lists


def train(dtype, kind, placement, rank, num_ranks, together=1):
    """All steps; returns the tables by column. One process may train on several ranks' rows."""
    tables = EmbeddingCollection(
        COLUMNS,
        placements=PLACEMENTS[placement],
        peers=Peers(rank, num_ranks),
        generator=torch.Generator().manual_seed(1),
        dtype=DTYPES[dtype],
    )
    optimizer = SparseOptimizer(tables, kind)
    for step in range(len(SHARES)):
        parts = [rows_of_rank(rank + other, step) for other in range(together)]
        rows = {c.name: [row for part in parts for row in part[c.name]] for c in COLUMNS}
        route = tables.route(*as_batch(rows))
        embedded = tables.expand(route, tables.fetch(route))
        sum(torch.sin(3 * values + 1).sum() for values in embedded).backward()
        sums = tables.collect(route, [leaf.grad for leaf in embedded])
        touched = tables.exchange(route, sums)
        assert all(len(rows.keys.unique()) == len(rows.keys) for rows in touched)
        optimizer.apply(touched, LR)
    tables.settle()
    return {column.name: whole_table(tables, column.name, num_ranks) for column in COLUMNS}


def whole_table(tables, name, num_ranks):
    """A column's table with the rows of all ranks."""
    number, keys = tables.keys_of_table(name)
    store, local = tables.stores[number], tables.weights[number].data
    if not store.spread:
        return local[keys].clone()
    padded = local.new_zeros(-(-store.num_rows // num_ranks), store.dim)
    padded[: len(local)] = local
    parts = [torch.empty_like(padded) for _ in range(num_ranks)]
    dist.all_gather(parts, padded)
    own = torch.arange(keys.start, keys.stop)
    return torch.stack(parts)[place_of(own, num_ranks)]


def results(rank, num_ranks):
    """The tables that a rank of a gang ends with, for each case."""
    return {"-".join(case): train(*case, rank=rank, num_ranks=num_ranks) for case in cases()}
