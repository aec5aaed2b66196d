"""The real gloo ranks of `test_crowd_ranks.py`."""

from unittest import mock

import torch
from click_models import model_over

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.train.step import buckets
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

NUM_RANKS = (6,)
# Fewer rows than ranks in "few" and "one", which has a store of its own where it is row-wise.
COLUMNS = [
    TableColumn("user", 101, 4),
    TableColumn("few", 3, 4),
    TableColumn("seen", 40, 4, "mean", table="item"),
    TableColumn("item", 40, 4, table="item"),
    TableColumn("one", 1, 2),
    TableColumn("tags", 17, 8, "sum"),
]
NAMES = tuple(column.name for column in COLUMNS if column.combiner is None)
LISTS = tuple(column for column in COLUMNS if column.combiner is not None)
NUMBERS = ("x", "y")
MIXED = ["row_wise", "replicated", "host_cached", "host_cached", "row_wise", "replicated"]
PLACEMENTS = {
    "replicated": ["replicated"] * 6,
    "row_wise": ["row_wise"] * 6,
    "mixed": MIXED,
}
# name: placement, the spec's train section
CASES = {
    "replicated": ("replicated", {}),
    "row_wise": ("row_wise", {}),
    "mixed, clipped slices": (
        "mixed",
        {"clip_grad_norm": 0.02, "micro_batches": 3, "optimizer": {"kind": "adam"}},
    ),
}
STEPS, LR = 6, 0.1


def shares(step, num_ranks):
    """How many rows each rank has: odd numbers, none for some, all for one, one for one."""
    if step == 2:
        return [23 if rank == num_ranks - 1 else 0 for rank in range(num_ranks)]
    if step == 4:
        return [int(rank == 1) for rank in range(num_ranks)]
    return [(7 * rank + 5 * step) % 9 for rank in range(num_ranks)]


def global_batch(step, num_rows):
    """All ranks' rows. In step 3 all ids of a column are the same; in step 5 no list has any."""
    generator = torch.Generator().manual_seed(step)

    def draw(column, count):
        most = 1 if step == 3 else column.cardinality
        return torch.randint(0, most, (count,), generator=generator, dtype=torch.int32)

    flat = [draw(column, num_rows) for column in COLUMNS if column.combiner is None]
    lists = {}
    for column in LISTS:
        lengths = torch.randint(0, 1 if step == 5 else 4, (num_rows,), generator=generator)
        offsets = torch.zeros(num_rows + 1, dtype=torch.int32)
        offsets[1:] = lengths.cumsum(0)
        lists[column.name] = Ragged(draw(column, int(offsets[-1])), offsets)
    return Batch(
        torch.stack(flat, 1),
        torch.randn(num_rows, 2, generator=generator, dtype=torch.float64),
        torch.randint(0, 2, (num_rows,), generator=generator).double(),
        NAMES,
        NUMBERS,
        lists=lists,
    )


def new_tables(placement, rank, num_ranks):
    """The tables of a rank; only to look at without its peers where there is no process group."""
    return EmbeddingCollection(
        COLUMNS,
        placements=PLACEMENTS[placement],
        peers=Peers(rank, num_ranks),
        generator=torch.Generator().manual_seed(1),
        dtype=torch.float64,
        cache_bytes=40_000 // num_ranks,
    )


def train(name, rank, num_ranks, shared_by):
    """One of `CASES`: the sums of losses and the logits of each step, and all weights at the end.

    `shared_by` ranks have the batches; one process that trains alone takes the rows of all.
    """
    placement, section = CASES[name]
    tables = new_tables(placement, rank, num_ranks)
    torch.manual_seed(rank)  # making the step gives all of them rank 0's
    model = model_over(tables, MLPBlock([8, 5]), NUMBERS)
    model.dense.double()
    spec = TrainSpec.model_validate({"optimizer": {"kind": "adagrad"}, **section})
    step = TrainStep(model, spec, num_ranks)
    losses, logits = [], []
    for number in range(STEPS):
        counts = shares(number, shared_by)
        batch = global_batch(number, sum(counts))
        mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        own = batch if num_ranks == 1 else batch.part(mine)
        (of_rows,), loss_sum = step(own, batch.num_rows, LR, PhaseClock())
        losses.append(loss_sum)
        logits.append(of_rows)
    tables.settle()
    return {
        "losses": torch.stack(losses),
        "logits": logits,
        "dense": [p.detach().clone() for p in model.dense.parameters()],
        "tables": [weight.detach().clone() for weight in tables.weights],
        "sharers": [store.sharers.num_ranks for store in tables.stores],
    }


def results(rank, num_ranks):
    """What a rank ends with, for each case, twice."""
    with mock.patch.object(buckets, "LEAST_BYTES", 64):  # the small models' gradients need several
        return {name: [train(name, rank, num_ranks, num_ranks) for _ in range(2)] for name in CASES}
