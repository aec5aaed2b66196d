"""Columns that share a table, against nn.Embedding with dense gradients and naive loops."""

from dataclasses import replace

import torch
from hypothesis import given, settings, strategies as st
from kernel_cases import by_column
from ragged_rows import draw_rows_of_ids, ragged
from torch import nn

from distrain.errors import InputError, SchemaError, SpecError
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.canonical_state import canonical_state, canonical_weights
from distrain.models.embeddings.sharding.placing import plan_placements
from distrain.models.embeddings.sharding.table_bytes import (
    RankShare,
    RowBytes,
    TableSize,
    table_sizes,
)

COLUMNS = [
    TableColumn("liked", 20, 4, "mean", table="item"),
    TableColumn("user", 30, 4),
    TableColumn("item", 20, 4),
    TableColumn("day", 7, 2),
    TableColumn("last", 20, 4, table="item"),
    TableColumn("seen", 20, 4, "sqrtn", table="item"),
]
LR = 0.1


def new_tables(columns, dtype=torch.float32, placements=None):
    generator = torch.Generator().manual_seed(1)
    return EmbeddingCollection(columns, placements=placements, generator=generator, dtype=dtype)


def draw_rows(columns, num_rows, generator):
    """Each column's ids of each row, as lists; rows of flat columns have one."""
    rows = {c.name: draw_rows_of_ids(num_rows, c.cardinality, generator, most=4) for c in columns}
    for column in columns:
        if column.combiner is None:
            rows[column.name] = [(row or [0])[:1] for row in rows[column.name]]
    return rows


def as_batch(columns, rows, num_rows):
    flat = [torch.tensor(rows[c.name]).view(-1) for c in columns if c.combiner is None]
    ids = torch.stack(flat).int().T if flat else torch.zeros(num_rows, 0, dtype=torch.int32)
    return ids, {c.name: ragged(rows[c.name]) for c in columns if c.combiner is not None}


def naive(columns, weights, rows, num_rows):
    """What torch computes of dense tables by name, one row after another."""
    found = {}
    for column in columns:
        weight = weights[column.table_name]
        power = {"mean": 1.0, "sqrtn": 0.5}.get(column.combiner, 0.0)
        vectors = [
            nn.functional.embedding(torch.tensor(row), weight).sum(0) / len(row) ** power
            if row
            else weight.new_zeros(column.dim)
            for row in rows[column.name]
        ]
        found[column.name] = torch.stack(vectors) if vectors else weight.new_zeros(0, column.dim)
    return found


def loss_of(found, columns):
    return sum(((i + 1) * torch.sin(found[c.name] + i)).sum() for i, c in enumerate(columns))


SIZES = [(1, 1), (5, 2), (9, 3), (6, 3)]
DRAWN = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, None, "sum", "mean", "sqrtn"])),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=20)
@given(drawn=DRAWN, num_rows=st.integers(0, 6), seed=st.integers(0, 99), cached=st.booleans())
def test_gradients_equal_dense_autograd(drawn, num_rows, seed, cached):
    columns = [
        TableColumn(f"c{i}", *SIZES[table], combiner=combiner, table=f"t{table}")
        for i, (table, combiner) in enumerate(drawn)
    ]
    tables = new_tables(columns, torch.float64, ["host_cached"] * len(columns) if cached else None)
    used = sorted({table for table, _ in drawn})
    assert sum(len(w) for w in tables.weights) == sum(SIZES[table][0] for table in used)
    weights = {c.table_name: tables.table(c.name).clone().requires_grad_() for c in tables.tables}
    rows = draw_rows(columns, num_rows, torch.Generator().manual_seed(seed))
    batch = as_batch(columns, rows, num_rows)
    route = tables.route(*batch)
    distinct = {(c.table_name, i) for c in columns for row in rows[c.name] for i in row}
    lookups = sum(len(row) for c in columns for row in rows[c.name])
    assert (route.traffic.lookups, route.traffic.distinct) == (lookups, len(distinct))
    embedded = tables.expand(route, tables.fetch(route))
    expected = naive(columns, weights, rows, num_rows)
    for name, values in by_column(tables, embedded).items():
        torch.testing.assert_close(values, expected[name])
    loss_of(by_column(tables, embedded), columns).backward()
    if lookups:
        loss_of(expected, columns).backward()
    sums = tables.collect(route, [leaf.grad for leaf in embedded])
    touched = tables.exchange(route, sums)
    assert all(len(part.keys.unique()) == len(part.keys) for part in touched)
    SparseOptimizer(tables, "sgd").apply(touched, LR)
    for column in tables.tables:
        weight = weights[column.table_name]
        grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        torch.testing.assert_close(tables.table(column.name), weight.detach() - LR * grad)


def test_tables_are_drawn_and_stored_once():
    alone = [TableColumn("item", 20, 4), TableColumn("user", 30, 4), TableColumn("day", 7, 2)]
    tables, others = new_tables(COLUMNS), new_tables(alone)
    for name in ("liked", "item", "last", "seen"):
        assert torch.equal(tables.table(name), others.table("item"))
    assert torch.equal(tables.table("user"), others.table("user"))
    for ours, theirs in (
        (canonical_weights(tables), canonical_weights(others)),
        tuple(canonical_state(SparseOptimizer(t, "adam")) for t in (tables, others)),
    ):
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert ours[name].shape == tensor.shape
            whole = slice(0, tensor.shape[0])
            assert torch.equal(ours[name].read(whole), tensor.read(whole))


def test_columns_of_one_table_have_one_size_and_one_placement(wording):
    item = TableColumn("item", 20, 4)
    words = ["row_wise" if column.name == "last" else "replicated" for column in COLUMNS]
    wording.refused(
        SchemaError,
        lambda: new_tables([item, TableColumn("last", 21, 4, table="item")]),
        lambda: new_tables([item, TableColumn("last", 20, 8, table="item")]),
    )
    wording.refused(InputError, lambda: new_tables(COLUMNS, placements=words))
    twice = {"last": "row_wise", "item": "replicated"}
    wording.refused(SpecError, lambda: plan(COLUMNS, overrides=twice))
    assert plan(COLUMNS, overrides={"last": "row_wise", "item": "row_wise"}).tables


def plan(columns, overrides=None):
    share = RankShare(2, 8, RowBytes("adagrad"))
    return plan_placements(table_sizes(columns), share, budget_bytes=None, overrides=overrides)


def test_the_plan_counts_a_table_once():
    found = plan(COLUMNS, overrides={"last": "row_wise", "user": "host_cached"})
    assert [table.name for table in found.tables] == ["item", "user", "day"]
    words = ["row_wise", "host_cached", "row_wise", "replicated", "row_wise", "row_wise"]
    assert list(found.placements_of(COLUMNS)) == words
    assert found.tables[0].weight_bytes == 10 * 4 * 4
    # Four columns of 8 rows look up its rows.
    assert found.tables[0].unique == TableSize("item", 20, 4).unique(4 * 8)
    apart = [replace(column, table=None) for column in COLUMNS]
    assert len(plan(apart).tables) == 6
