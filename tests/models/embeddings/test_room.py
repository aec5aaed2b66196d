"""The plan of a captured step against the capacity that such a step has."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.fixed_shape_stores import WholeStore
from distrain.models.embeddings.padded import Rooms
from distrain.models.embeddings.sharding.costs import DEFAULT_COSTS
from distrain.models.embeddings.sharding.planner import plan_placements
from distrain.models.embeddings.sharding.table_bytes import TableSize, table_sizes

LONG = [TableSize("a", 2_000_000, 16), TableSize("b", 300_000, 16)]


def plan(tables, **request):
    usual = {
        "num_ranks": 4,
        "batch_rows_per_rank": 4096,
        "budget_bytes": None,
        "optimizer": "sgd",
        "weight_bytes_per_value": 4,
        "costs": DEFAULT_COSTS["cuda"],
        "captured": True,
    }
    return plan_placements(tables, **(usual | request))


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
    room = sum(Rooms(store, rows).now)
    planned = plan(
        table_sizes(columns), num_ranks=ranks, batch_rows_per_rank=rows, wanted="row_wise"
    )
    # Owners hold unlike parts of short tables, and each one's capacity is a whole number.
    assert sum(table.room for table in planned.tables) == pytest.approx(
        room, rel=0.05, abs=3 * ranks
    )
    share = (ranks - 1) / ranks
    moved = share * sum(table.room for table in planned.tables) * 4 * 4
    sent = planned.sent_per_step
    assert (sent.rows, sent.sums) == (pytest.approx(moved), pytest.approx(moved))
    assert sent.ids == pytest.approx(share * 4 * sum(table.unique for table in planned.tables))


@settings(max_examples=25, deadline=None)
@given(columns, st.integers(2, 6), st.integers(1, 3000))
def test_the_plan_has_the_room_of_real_whole_stores(columns, ranks, rows):
    tables = EmbeddingCollection(columns, peers=Peers(0, ranks))
    (store,) = tables.stores
    capacity = WholeStore(store, rows, len(columns), torch.device("cpu")).capacity
    planned = plan(
        table_sizes(columns), num_ranks=ranks, batch_rows_per_rank=rows, wanted="replicated"
    )
    assert sum(table.room for table in planned.tables) == capacity
    assert planned.sent_per_step.total == (ranks - 1) * capacity * (4 + 4 * 4)


def test_all_that_one_rank_holds_whole_has_room_for_a_columns_of_other_rows():
    """Columns that share a table have capacity for the lookups of both."""
    shared = [TableColumn("seen", 5000, 4, table="t"), TableColumn("bought", 5000, 4, table="t")]
    tables = EmbeddingCollection(shared)
    fixed = FixedTables(tables, SparseOptimizer(tables, "sgd"), 100)
    route = fixed.route(torch.zeros(1, 2, dtype=torch.int32))
    planned = plan(table_sizes(shared), num_ranks=1, batch_rows_per_rank=100)
    assert planned.tables[0].room == len(route.stores[0].own.keys) == 200


def test_auto_reckons_with_the_room_of_captured_steps():
    costs = {"costs": DEFAULT_COSTS["cpu"], "num_ranks": 2}
    assert set(plan(LONG, captured=False, **costs).placements) == {"replicated"}
    found = plan(LONG, **costs)
    assert set(found.placements) == {"row_wise"}  # there a rank sends a quarter more, here all
    assert "in the room of a captured step: replicated" in found.tables[0].why
    by_hand = {p: plan(LONG, wanted=p, **costs).exchange_s for p in ("replicated", "row_wise")}
    assert found.exchange_s == min(by_hand.values())
