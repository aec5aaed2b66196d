"""The fused tables against one nn.Embedding per column."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings import EmbeddingCollection, TableColumn

COLUMNS = [
    TableColumn("a", 7, 4),
    TableColumn("b", 1, 2),
    TableColumn("c", 30, 4),
    TableColumn("d", 5, 3),
    TableColumn("e", 9, 2),
]


def random_ids(columns, rows, seed=0):
    """`[rows, columns]` int32 as the loader lays it out: each column contiguous."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in columns]
    return torch.stack(ids).to(torch.int32).T


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(0, 5),
)
def test_no_two_columns_share_a_row(sizes, rows):
    columns = [TableColumn(f"c{i}", *size) for i, size in enumerate(sizes)]
    tables = EmbeddingCollection(columns)
    assert sum(len(w) for w in tables.weights) == sum(c.cardinality for c in columns)
    ids = random_ids(columns, rows)
    # Every row says which column and id it is.
    for number, column in enumerate(columns):
        table = tables.table(column.name)
        table.copy_((torch.arange(column.cardinality) + 100 * number)[:, None].expand_as(table))
    for group, values in zip(tables.groups, tables(ids), strict=True):
        for place, position in enumerate(group):
            assert torch.equal(values[:, place, 0], ids[:, position].float() + 100 * position)
    for store, weight in zip(tables.stores, tables.weights, strict=True):
        every = torch.arange(len(weight))
        assert torch.equal(store.canonical_keys(every), every)


def test_table_is_a_view():
    tables = EmbeddingCollection(COLUMNS)
    assert tables.groups == ((1, 4), (3,), (0, 2))
    tables.table("c")[29] = 5.0
    ids = torch.zeros(1, 5, dtype=torch.int32)
    ids[0, 2] = 29
    assert torch.equal(tables(ids)[2][0, 1], torch.full((4,), 5.0))
    with pytest.raises(KeyError, match="nosuch"):
        tables.table("nosuch")


def test_looked_up_values_are_leaves_only_where_gradients_are_wanted():
    tables = EmbeddingCollection(COLUMNS)
    ids = random_ids(COLUMNS, 3)
    assert all(values.is_leaf and values.requires_grad for values in tables(ids))
    with torch.no_grad():
        assert not any(values.requires_grad for values in tables(ids))
    with torch.inference_mode():
        assert not any(values.requires_grad for values in tables(ids))
    assert not any(weight.requires_grad for weight in tables.parameters())


def test_a_state_dict_holds_the_weights_and_nothing_else():
    tables = EmbeddingCollection(COLUMNS)
    assert sorted(tables.state_dict()) == ["weights.0", "weights.1", "weights.2"]


def test_impossible_tables_and_ids_are_refused(wording):
    ids = torch.zeros(2, 3, dtype=torch.int32)
    wording.refused(
        ValueError, lambda: TableColumn("a", 0, 4), lambda: EmbeddingCollection(COLUMNS).route(ids)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_lookup_without_gradients_equals_one_by_a_route(dtype, factor):
    """Columns of two widths, in another order than their tables, two of which share one."""
    columns = [
        TableColumn("wide", 11, 18),
        TableColumn("b", 300, 4),
        TableColumn("also b", 300, 4, table="b"),
        TableColumn("a", 5, 4),
    ]
    tables = EmbeddingCollection(columns, generator=torch.Generator().manual_seed(1), dtype=dtype)
    tables.factor = factor
    for rows in (0, 1, 40):
        ids = torch.stack([torch.arange(rows) % c.cardinality for c in columns]).int().T
        expected = tables.expand(route := tables.route(ids), tables.fetch(route))
        with torch.no_grad():
            found = tables.lookup(ids)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert not any(values.requires_grad for values in found)
