"""The fused tables against one nn.Embedding per column."""

import pytest
import torch

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
