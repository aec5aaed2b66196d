"""Fused tables and sparse optimizers against nn.Embedding and torch's optimizers."""

from itertools import combinations

import pytest
import torch
from kernel_cases import by_column, take_step
from torch import nn

from distrain.jobs.optimizers import UPDATE_RULES
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.collection import TouchedRows
from distrain.models.embeddings.sparse_optimizer import rounding_seed

COLUMNS = [
    TableColumn("a", 40, 4),
    TableColumn("b", 3, 4),
    TableColumn("c", 11, 8),
    TableColumn("d", 1, 4),
]
WIDTH = sum(c.dim for c in COLUMNS)
KINDS = list(UPDATE_RULES)
TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
}


def batches(count, dtype):
    """Ids and weights of the loss; row counts differ, one batch is empty."""
    generator = torch.Generator().manual_seed(0)
    for step in range(count):
        rows = 0 if step == 2 else 30 + step
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        factors = torch.randn(rows, WIDTH, generator=generator, dtype=dtype)
        yield torch.stack(ids).to(torch.int32).T, factors


def loss_of(inputs, factors):
    return (inputs * factors).sum() + (inputs**2).sum()


def step_on(tables, optimizer, ids, factors):
    def loss(found):
        return loss_of(torch.cat([*found.values()], dim=1), factors)

    take_step(tables, optimizer, loss, ids)


def train_ours(kind, tables, dtype, optimizer=None):
    optimizer = optimizer or SparseOptimizer(tables, kind)
    for ids, factors in batches(6, dtype):
        step_on(tables, optimizer, ids, factors)


def train_torch(kind, tables, dtype, decay=0.0):
    plain = nn.ModuleList(
        nn.Embedding(
            c.cardinality, c.dim, _weight=tables.table(c.name).clone(), sparse=kind == "adam"
        )
        for c in COLUMNS
    )
    optimizer = TORCH[kind](plain.parameters())
    for ids, factors in batches(6, dtype):
        optimizer.zero_grad()
        embedded = [layer(ids[:, i]) for i, layer in enumerate(plain)]
        loss_of(torch.cat(embedded, dim=1), factors).backward()
        with torch.no_grad():
            for layer in plain:
                layer.weight *= 1 - 0.1 * decay
        optimizer.step()
    return plain


def new_tables(dtype):
    return EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(1), dtype=dtype)


def largest_difference(tables, plain):
    return max(
        (tables.table(c.name) - layer.weight).abs().max().item()
        for c, layer in zip(COLUMNS, plain, strict=True)
    )


@pytest.mark.parametrize("decay", [0.0, 0.3, 9.99])  # of 9.99 a thousandth is left in each step
@pytest.mark.parametrize("kind", sorted(TORCH))
def test_every_row_decays_before_the_update_of_those_touched(kind, decay):
    tables = new_tables(torch.float64)
    plain = train_torch(kind, tables, torch.float64, decay=decay)
    optimizer = SparseOptimizer(tables, kind, weight_decay=decay)
    train_ours(kind, tables, torch.float64, optimizer)
    assert tables.factor >= 1e-6, "weights in float32 would overflow"
    ids = torch.zeros(1, len(COLUMNS), dtype=torch.int32)
    seen = torch.cat([*by_column(tables, tables.lookup(ids)).values()], dim=1)
    expected = torch.cat([layer.weight[:1] for layer in plain], dim=1)
    assert (seen - expected).abs().max() < 1e-9
    assert largest_difference(tables, plain) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_untouched_rows_and_their_memory_stand_still(kind):
    tables = new_tables(torch.float32)
    optimizer = SparseOptimizer(tables, kind)
    before = [w.clone() for w in tables.weights]
    memory = {name: v.clone() for name, v in optimizer.state_dict().items()}
    ids = torch.tensor([[5, 0, 2, 0], [5, 1, 2, 0]])
    step_on(tables, optimizer, ids, torch.ones(2, WIDTH))
    expected = [[5, 40, 41, 43], [2]]  # a, b, d of width 4; c of width 8
    for number, (rows, old) in enumerate(zip(expected, before, strict=True)):
        touched = torch.zeros(len(old), dtype=torch.bool)
        touched[rows] = True
        assert (tables.weights[number] != old).any(dim=1).equal(touched)
        for name, values in optimizer.state_dict().items():
            if name.startswith(f"{number}."):
                changed = (values != memory[name]).view(len(old), -1)
                assert changed.any(dim=1).equal(touched)


def test_options_reach_the_formula():
    tables = EmbeddingCollection([TableColumn("a", 2, 1)], dtype=torch.float64)
    touched = [TouchedRows(torch.tensor([1]), torch.tensor([[3.0]], dtype=torch.float64))]

    def row_after(optimizer, lr, **options):
        tables.weights[0].zero_()
        optimizer.apply(touched, lr, **options)
        return tables.weights[0][1].item()

    adagrad = SparseOptimizer(tables, "adagrad", eps=0.5, initial_accumulator_value=16.0)
    assert row_after(adagrad, 1.0) == pytest.approx(-3 / (5 + 0.5))
    rowwise = SparseOptimizer(tables, "rowwise_adagrad", eps=0.5, initial_accumulator_value=16.0)
    assert row_after(rowwise, 1.0) == pytest.approx(-3 / (5 + 0.5))
    adam = SparseOptimizer(tables, "adam", eps=0.0, betas=(0.5, 0.5))
    assert row_after(adam, 0.25) == pytest.approx(-0.25)
    sgd = SparseOptimizer(tables, "sgd")
    assert row_after(sgd, 1.0, scale=0.5) == -1.5
    assert row_after(sgd, 1.0, scale=torch.tensor(0.5, dtype=torch.float64)) == -1.5


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_left_as_they_were(kind):
    tables = new_tables(torch.float32)
    touched = [
        TouchedRows(torch.arange(3), torch.ones(3, weight.shape[1])) for weight in tables.weights
    ]
    SparseOptimizer(tables, kind).apply(touched, 0.1, scale=0.5)
    assert all((rows.grads == 1).all() for rows in touched)


def test_bfloat16_is_rounded_otherwise_in_every_step_and_width():
    tables = EmbeddingCollection([TableColumn("a", 400, 8)], dtype=torch.bfloat16)
    optimizer = SparseOptimizer(tables, "sgd", seed=5)
    (weight,) = tables.weights
    rows = TouchedRows(torch.arange(400), torch.full((400, 8), 2.0**-9))
    ends = []
    for _ in range(3):
        weight.fill_(1.0)  # so that the steps differ in nothing but their number
        optimizer.apply([rows], 1.0)
        ends.append(weight.detach().clone())
    for one, other in combinations(ends, 2):
        assert 0.2 < float((one != other).float().mean()) < 0.8


def test_a_step_is_rounded_by_the_same_bits_in_every_version():
    """A checkpoint of an earlier version continues with the bits of a run that was not stopped."""
    assert rounding_seed(2, 3, 8) == 2_000_015_000_035
    assert rounding_seed(2**64 - 1, 1, 4) == 18_446_743_073_704_551_614
