"""The real gloo ranks of `test_exchange.py`."""

from itertools import product

import torch
from torch import distributed as dist, nn

from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.row_owners import place_of

COLUMNS = [
    TableColumn("a", 50, 4),
    TableColumn("b", 3, 4),
    TableColumn("c", 9, 2),
    TableColumn("d", 1, 2),
    TableColumn("e", 200, 16),
]
WIDTH = sum(column.dim for column in COLUMNS)
KINDS = ("sgd", "adam")  # `test_kernel_updates.py` and `test_sparse_optimizer.py` have all
PLACEMENTS = {
    "replicated": ["replicated"] * 5,
    "row_wise": ["row_wise"] * 5,
    "host_cached": ["row_wise", "replicated", "replicated", "row_wise", "host_cached"],
    "mixed": ["row_wise", "replicated", "replicated", "row_wise", "row_wise"],
}
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
# Shares of 12ths of each global batch that ranks get: even, uneven, one rank empty, all the others.
SHARES = {1: [(12,)] * 5, 2: [(6, 6), (5, 7), (12, 0), (1, 11), (0, 12)]}
SHARES[4] = [(3, 3, 3, 3), (5, 0, 6, 1), (0, 12, 0, 0), (1, 1, 9, 1), (0, 0, 0, 12)]
LR = 0.1


def cases(num_ranks):
    """What a gang trains: dtype, optimizer and placement."""
    yield from product(["fp32"], KINDS, PLACEMENTS)
    yield from product(["fp64"], KINDS, ["row_wise"])
    if num_ranks == 2:
        yield from product(["bf16"], ["sgd", "adam"], ["replicated", "row_wise"])
    if num_ranks == 4:
        yield "bf16", "adam", "row_wise"


def name_of(dtype, kind, placement):
    return f"{dtype}-{kind}-{placement}"


def global_batches(num_ranks):
    """Ids `[rows, 5]`, labels `[rows]`, and how many rows each rank gets, for each step."""
    generator = torch.Generator().manual_seed(7)
    for step, shares in enumerate(SHARES[num_ranks]):
        unit = 3 + step
        ids = [torch.randint(0, c.cardinality, (12 * unit,), generator=generator) for c in COLUMNS]
        labels = torch.randint(0, 2, (12 * unit,), generator=generator, dtype=torch.float64)
        yield torch.stack(ids).to(torch.int32).T, labels, [share * unit for share in shares]
    empty = torch.zeros(0, 5, dtype=torch.int32)
    yield empty, torch.zeros(0, dtype=torch.float64), [0] * num_ranks


def new_tables(dtype, placement, peers):
    return EmbeddingCollection(
        COLUMNS,
        placements=PLACEMENTS[placement],
        peers=peers,
        generator=torch.Generator().manual_seed(1),
        dtype=DTYPES[dtype],
        # Capacity for six rows in ten of the last table, so that some have to go.
        cache_bytes=120 * 16 * DTYPES[dtype].itemsize // peers.num_ranks,
    )


def loss_of(embedded, labels, factors):
    """A dense part without parameters, so small that the tables' share of the result shows."""
    joined = torch.cat([values.flatten(1) for values in embedded], dim=1).double()
    logits = joined @ factors + (joined**2).sum(1)
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")


def train(dtype, kind, placement, rank, num_ranks, split=None):
    """All steps; returns the tables and what the optimizer remembers.

    `split` makes one process do what so many ranks would, one share after another: the gradients
    of each are summed by themselves, then the sums are added in order.
    """
    tables = new_tables(dtype, placement, Peers(rank, num_ranks))
    optimizer = SparseOptimizer(tables, kind)
    factors = torch.linspace(-1, 1, WIDTH, dtype=torch.float64)
    for ids, labels, counts in global_batches(split or num_ranks):
        mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        if split:
            mine = slice(0, len(labels))
        route = tables.route(ids[mine])
        rows = tables.fetch(route)
        scale = num_ranks / max(1, len(labels))
        sums = None
        for part in shares_of(counts) if split else [None]:
            embedded = tables.expand(route, rows, part)
            (loss_of(embedded, labels[mine][part or slice(None)], factors) * scale).backward()
            own = tables.collect(route, [leaf.grad for leaf in embedded], part)
            sums = own if sums is None else tuple(a + b for a, b in zip(sums, own, strict=True))
        optimizer.apply(tables.exchange(route, sums), LR, scale=1 / num_ranks)
    return whole(tables, optimizer, num_ranks)


def shares_of(counts):
    ends = torch.tensor(counts).cumsum(0).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


def whole(tables, optimizer, num_ranks):
    """Every table and its optimizer memory with the rows of all ranks, column by column."""
    state = optimizer.state_dict()
    result = {}
    for column in tables.columns:
        number, keys = tables.keys_of_table(column.name)
        store = tables.stores[number]
        tensors = {"weight": tables.weights[number]}
        tensors |= {k: v for k, v in state.items() if k.startswith(f"{number}.")}
        for name, local in tensors.items():
            full = local.data
            if store.spread:
                full = interleaved(local.data, store.num_rows, num_ranks)
            result[f"{column.name}.{name.split('.')[-1]}"] = full[keys].clone()
    return result


def interleaved(local, num_rows, num_ranks):
    """The rows of all ranks by key."""
    padded = local.new_zeros(-(-num_rows // num_ranks), *local.shape[1:])
    padded[: len(local)] = local
    parts = [torch.empty_like(padded) for _ in range(num_ranks)]
    dist.all_gather(parts, padded)
    keys = torch.arange(num_rows)
    return torch.stack(parts)[place_of(keys, num_ranks)]


def results(rank, num_ranks):
    """What a rank of a gang ends with, for each case."""
    return {
        name_of(*case): train(*case, rank=rank, num_ranks=num_ranks) for case in cases(num_ranks)
    }
