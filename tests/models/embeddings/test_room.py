"""The plan of a captured step against the capacity that such a step has."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.fixed_shape_stores import ReplicatedStore
from distrain.models.embeddings.padded import RowCapacities
from distrain.models.embeddings.sharding.placing import plan_placements
from distrain.models.embeddings.sharding.table_bytes import RankShare, RowBytes, table_sizes


def plan(columns, ranks, rows, wanted="auto"):
    share = RankShare(ranks, rows, RowBytes("sgd"), captured=True)
    return plan_placements(table_sizes(columns), share, budget_bytes=None, wanted=wanted)


columns = st.lists(st.integers(1, 30_000), min_size=1, max_size=5).map(
    lambda sizes: [TableColumn(f"C{i}", size, 4) for i, size in enumerate(sizes)]
)


@settings(max_examples=25, deadline=None)
@given(columns, st.integers(2, 6), st.integers(1, 3000))
def test_the_plan_has_the_room_of_real_spread_stores(columns, ranks, rows):
    tables = EmbeddingCollection(
        columns, placements=("row_wise",) * len(columns), peers=Peers(0, ranks)
    )
    (store,) = tables.stores
    room = sum(RowCapacities(store, rows).now)
    planned = plan(columns, ranks, rows, "row_wise")
    # Owners hold unlike parts of short tables, and each one's capacity is an integer.
    assert planned.total("room") == pytest.approx(room, rel=0.05, abs=3 * ranks)
    moved = 2 * 4 * planned.total("room") + planned.total("unique")  # values and ids
    assert planned.total("sent_bytes") == pytest.approx((ranks - 1) / ranks * 4 * moved)


@settings(max_examples=25, deadline=None)
@given(columns, st.integers(2, 6), st.integers(1, 3000))
def test_the_plan_has_the_room_of_real_whole_stores(columns, ranks, rows):
    tables = EmbeddingCollection(columns, peers=Peers(0, ranks))
    (store,) = tables.stores
    capacity = ReplicatedStore(store, rows, len(columns), torch.device("cpu")).capacity
    planned = plan(columns, ranks, rows, "replicated")
    assert planned.total("room") == capacity
    assert planned.total("sent_bytes") == (ranks - 1) * capacity * (4 + 4 * 4)


@settings(max_examples=25, deadline=None)
@given(columns, st.integers(2, 6), st.lists(st.integers(0, 40_000), max_size=4))
def test_capacities_grow_to_what_is_wanted_and_a_quarter_and_to_all_rows_at_most(
    columns, ranks, asked
):
    tables = EmbeddingCollection(
        columns, placements=("row_wise",) * len(columns), peers=Peers(0, ranks)
    )
    sizes = [column.cardinality for column in columns]
    capacities = RowCapacities(tables.stores[0], max(sizes))
    planned = capacities.now
    seen = [capacities.now for wanted in asked if capacities.make(wanted) is None]
    capacities.make(10**6)
    held = capacities.now
    assert sum(held) == sum(sizes)
    for number, now in enumerate(seen, 1):
        wanted = math.ceil(1.25 * max(asked[:number]))
        assert now == tuple(
            max(first, min(most, wanted)) for first, most in zip(planned, held, strict=True)
        )


def test_all_that_one_rank_holds_whole_has_room_for_a_columns_of_other_rows():
    """Columns that share a table have capacity for the lookups of both."""
    shared = [TableColumn("seen", 5000, 4, table="t"), TableColumn("bought", 5000, 4, table="t")]
    tables = EmbeddingCollection(shared)
    fixed = FixedTables(tables, SparseOptimizer(tables, "sgd"), 100)
    route = fixed.route(torch.zeros(1, 2, dtype=torch.int32))
    planned = plan(shared, 1, 100)
    assert planned.tables[0].room == len(route.stores[0].own.keys) == 200
