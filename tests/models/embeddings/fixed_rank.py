"""The real gloo ranks of `test_fixed.py`."""

import torch

from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.row_owners import key_at

# One table has fewer rows than four ranks, the last column shares the first one's.
COLUMNS = [
    TableColumn("a", 4000, 4, table="a"),
    TableColumn("b", 3, 4),
    TableColumn("c", 9, 2),
    TableColumn("again", 4000, 4, table="a"),
]
MAX_ROWS = 48
# Each rank's rows in each step: even, uneven, one rank empty, all of them.
ROWS = [(12, 12, 48, 48), (5, 7, 1, 48), (12, 0, 3, 0), (0, 1, 0, 0), (0,) * 4, (9, 12, 48, 20)]
ROWS += [(48,) * 4, (12, 9, 48, 7)]
SKEWED = 6
"""The step of which one owner has all rows."""

GANGS = {2: ("row_wise", "mixed"), 4: ("row_wise",)}
"""Which placements ranks of each number run."""

PLACEMENTS = {
    "row_wise": ("row_wise",) * 4,
    "mixed": ("row_wise", "replicated", "row_wise", "row_wise"),
}
KINDS = {"rowwise_adagrad": torch.float32, "adam": torch.bfloat16}


def batches(rank, num_ranks):
    """Ids and gradients of the looked-up rows: groups are ordered by width, so c comes first."""
    generator = torch.Generator().manual_seed(rank)
    for step, rows in enumerate(ROWS):
        own = rows[rank]
        ids = [torch.randint(0, c.cardinality, (own,), generator=generator) for c in COLUMNS]
        if step == SKEWED:
            ids[0], ids[3] = key_at(torch.arange(2 * own), 0, num_ranks).split(own)
        grads = [torch.randn(own, *shape, generator=generator) for shape in ((1, 2), (3, 4))]
        yield torch.stack(ids).to(torch.int32).T, grads


def train(kind, peers, placements, *, is_fixed):
    """All steps; what was looked up, the weights, and the capacities of each step."""
    tables = EmbeddingCollection(
        COLUMNS,
        placements=placements,
        peers=peers,
        generator=torch.Generator().manual_seed(1),
        dtype=KINDS[kind],
    )
    optimizer = SparseOptimizer(tables, kind, seed=5)
    fixed = FixedTables(tables, optimizer, MAX_ROWS)
    told, rooms = [], []
    for ids, grads in batches(peers.rank, peers.num_ranks):
        if is_fixed:
            padded = fixed.ask(ids)
            rooms.append(padded.rooms)
            route = fixed.route(ids, padded)
            told += [leaf.detach() for leaf in fixed.lookup(route)]
            fixed.update(route, grads, 0.1, 0.5)
        else:
            route = tables.route(ids)
            told += [leaf.detach() for leaf in tables.expand(route, tables.fetch(route))]
            optimizer.apply(tables.exchange(route, tables.collect(route, grads)), 0.1, scale=0.5)
    return {"told": [*told, *(weight.detach() for weight in tables.weights)], "rooms": rooms}


def results(rank, num_ranks):
    """What a rank ends with, for each placement, optimizer, and way to step."""
    peers = Peers(rank, num_ranks)
    return {
        (name, kind, way): train(kind, peers, PLACEMENTS[name], is_fixed=way == "fixed")
        for name in GANGS[num_ranks]
        for kind in KINDS
        for way in ("fixed", "dynamic")
    }
