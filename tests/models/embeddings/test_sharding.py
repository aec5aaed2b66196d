"""The plan of tables: laws, figures, and a search through all placements."""

import itertools
import math
import random
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st
from refusals import refuses

from distrain.errors import SpecError
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.costs import Costs, crossover_unique, expected_unique
from distrain.models.embeddings.sharding.plan import explain
from distrain.models.embeddings.sharding.planner import plan_placements
from distrain.models.embeddings.sharding.table_bytes import TableSize

FAST = Costs(350e9, 20e-6)
WORDS = ("replicated", "row_wise", "host_cached")

table_lists = st.lists(
    st.tuples(
        st.integers(1, 200_000),
        st.sampled_from([1, 4, 16]),
        st.none() | st.floats(0, 50_000),
    ),
    min_size=1,
    max_size=6,
).map(lambda sizes: [TableSize(f"C{i}", *size) for i, size in enumerate(sizes)])
costs = st.builds(Costs, st.floats(1e8, 1e12), st.floats(0, 1e-3))
requests = st.fixed_dictionaries(
    {
        "num_ranks": st.integers(1, 9),
        "batch_rows_per_rank": st.integers(1, 65_536),
        "optimizer": st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
        "weight_bytes_per_value": st.sampled_from([2, 4]),
        "costs": costs,
        "overrides": st.dictionaries(st.just("C0"), st.sampled_from(WORDS)),
    }
)
budgets = st.none() | st.integers(0, 30_000_000)


def plan(tables, *, budget_bytes=None, **request):
    usual = {
        "num_ranks": 4,
        "batch_rows_per_rank": 1000,
        "optimizer": "sgd",
        "weight_bytes_per_value": 4,
        "costs": FAST,
    }
    return plan_placements(tables, budget_bytes=budget_bytes, **(usual | request))


def plan_or_none(tables, **request):
    try:
        return plan(tables, **request)
    except SpecError:
        return None


def naive_bytes(table, placement, request):
    """What a rank that owns most of a table's rows holds, row by row, wherever the table starts."""
    values = {"sgd": 0, "adagrad": table.dim, "rowwise_adagrad": 1, "adam": 2 * table.dim}
    ranks = request["num_ranks"]
    row = request["weight_bytes_per_value"] * table.dim + 4 * values[request["optimizer"]]
    owned = -(-table.rows // ranks)
    if placement == "host_cached":
        owned = min(owned, math.ceil(table.unique(request["batch_rows_per_rank"])))
    return row * (table.rows if placement == "replicated" else owned)


def naive_seconds(tables, placements, request):
    """The documented formulas, written out."""
    ranks, found = request["num_ranks"], 0.0
    if ranks == 1:
        return found
    for table, placement in zip(tables, placements, strict=True):
        unique, row = table.unique(request["batch_rows_per_rank"]), 4 * table.dim
        if placement == "replicated":
            sent = (ranks - 1) * unique * (row + 4)
        else:
            sent = (ranks - 1) / ranks * unique * (2 * row + 4)
        found += sent / request["costs"].bytes_per_s
    stores = {(t.dim, p) for t, p in zip(tables, placements, strict=True)}
    return found + sum(PLACEMENTS[p].collectives for _, p in stores) * request["costs"].latency_s


@settings(deadline=None)
@given(table_lists, requests, budgets)
def test_a_plan_keeps_the_budget_or_is_refused_and_adds_up(tables, request, budget):
    found = plan_or_none(tables, budget_bytes=budget, **request)
    if found is None:
        assert budget is not None
        return
    assert found == plan(tables, budget_bytes=budget, **request)
    assert len(found.placements) == len(tables)
    assert [t.name for t in found.tables] == [t.name for t in tables]
    pairs = list(zip(tables, found.placements, strict=True))
    assert found.bytes_per_rank == sum(naive_bytes(*pair, request) for pair in pairs)
    assert budget is None or found.bytes_per_rank <= budget
    expected = naive_seconds(tables, found.placements, request)
    assert found.exchange_s == pytest.approx(expected, rel=1e-9, abs=1e-15)
    if request["num_ranks"] == 1:
        assert set(found.placements) <= {"replicated", "host_cached"}
        assert found.sent_per_step.total == 0
    assert all(table.why for table in found.tables)
    assert explain(found)


@settings(deadline=None)
@given(table_lists, requests, budgets, budgets)
def test_a_bigger_budget_never_shards_more(tables, request, one, other):
    small, large = sorted((one, other), key=lambda b: math.inf if b is None else b)
    tight = plan_or_none(tables, budget_bytes=small, **request)
    loose = plan_or_none(tables, budget_bytes=large, **request)
    if tight is None:
        return
    assert loose is not None
    sharded = [
        {t.name for t in found.tables if t.placement == "row_wise"} for found in (loose, tight)
    ]
    assert sharded[0] <= sharded[1]


@given(table_lists, requests, budgets)
@settings(max_examples=30, deadline=None)
def test_no_placement_of_one_width_is_faster_and_fits(tables, request, budget):
    tables = [TableSize(t.name, t.rows, 16, t.expected_unique) for t in tables]
    request |= {"num_ranks": request["num_ranks"] + 2}  # two and fewer do not go by cost
    found = plan_or_none(tables, budget_bytes=budget, **request)
    choices = [
        [request["overrides"][t.name]] if t.name in request["overrides"] else WORDS[:2]
        for t in tables
    ]
    fitting = [
        placements
        for placements in itertools.product(*choices)
        if budget is None
        or sum(naive_bytes(t, p, request) for t, p in zip(tables, placements, strict=True))
        <= budget
    ]
    assert (found is None) == (not fitting)
    if found is not None:
        best = min(naive_seconds(tables, placements, request) for placements in fitting)
        assert found.exchange_s <= best * (1 + 1e-9) + 1e-15


@given(table_lists, requests)
@settings(max_examples=20, deadline=None)
def test_with_enough_memory_no_placement_is_faster(tables, request):
    tables = tables[:5]
    request |= {"num_ranks": request["num_ranks"] + 2, "overrides": {}}
    found = plan(tables, **request)
    best = min(
        naive_seconds(tables, placements, request)
        for placements in itertools.product(WORDS[:2], repeat=len(tables))
    )
    assert found.exchange_s <= best * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(("ranks", "crossover"), [(4, 133_000), (8, 39_000)])
def test_the_crossovers_at_dim_16_are_those_derived_for_nvlink(ranks, crossover):
    # They were derived for two more collectives; our row-wise exchange needs one more.
    assert crossover_unique(16, ranks, FAST, 2) == pytest.approx(crossover, rel=0.005)
    bound = crossover_unique(16, ranks, FAST)
    assert bound == pytest.approx(crossover / 2, rel=0.005)
    for count, word in ((bound - 1, "replicated"), (bound + 1, "row_wise")):
        found = plan([TableSize("a", 10**7, 16, count)], num_ranks=ranks)
        assert found.placements == (word,)


def test_two_ranks_shard_only_for_memory():
    tables = [TableSize("a", 10**6, 16, 10**6), TableSize("b", 10**6, 8, 10**6)]
    assert plan(tables, num_ranks=2).placements == ("replicated", "replicated")
    # The width that frees most memory goes first.
    found = plan(tables, num_ranks=2, budget_bytes=70_000_000)
    assert found.placements == ("row_wise", "replicated")
    assert "would not fit" in found.tables[0].why
    assert plan(tables, num_ranks=2, budget_bytes=50_000_000).placements == ("row_wise",) * 2


def test_wanted_and_overrides_outrank_the_rule():
    tables = [TableSize("a", 1000, 16), TableSize("b", 10**7, 16, 10**6)]
    for word in WORDS:
        found = plan(tables, wanted=word, overrides={"b": "replicated"})
        assert found.placements == (word, "replicated")
        assert "embeddings.placement" in found.tables[0].why
        assert "embeddings.tables" in found.tables[1].why


def test_a_host_cached_table_takes_the_hosts_memory_and_a_steps_rows():
    (table,) = plan([TableSize("a", 1000, 16, 60)], wanted="host_cached", num_ranks=4).tables
    assert (table.weight_bytes, table.host_bytes) == (60 * 64, 250 * 64)


def test_tables_that_do_not_fit_are_refused_with_ways_to_fit_them(wording):
    big, small = TableSize("big", 1 << 20, 16), TableSize("small", 10, 16)
    one, mib = {"num_ranks": 1}, 1 << 20
    refuses(
        wording,
        SpecError,
        lambda: plan([big, small], optimizer="adagrad", budget_bytes=80 * mib, **one),
        lambda: plan([big], optimizer="adam", budget_bytes=40 * mib, **one),  # two changes
        lambda: plan([TableSize("user_id", 10, 4)], overrides={"user_idd": "row_wise"}),
    )


def test_what_is_offered_fits():
    tables = [TableSize("big", 999_999, 16), TableSize("other", 12_345, 4)]
    budget = 20 << 20
    with pytest.raises(SpecError) as caught:
        plan(tables, num_ranks=2, optimizer="adam", budget_bytes=budget, wanted="replicated")
    text = str(caught.value)
    ranks = int(text.partition("row-wise on ")[2].partition(" ranks")[0])
    usual = {"optimizer": "adam", "budget_bytes": budget, "wanted": "row_wise"}
    assert plan(tables, num_ranks=ranks, **usual)
    assert plan_or_none(tables, num_ranks=ranks - 1, **usual) is None
    width = int(text.partition("widths of at most ")[2].partition(" ")[0])
    for most, fits in ((width, True), (width + 1, False)):
        narrow = [TableSize(t.name, t.rows, min(t.dim, most)) for t in tables]
        usual = {"num_ranks": 2, "optimizer": "adam", "wanted": "replicated"}
        assert (plan_or_none(narrow, budget_bytes=budget, **usual) is not None) is fits
    enough = float(text.partition("embeddings.memory_gib: ")[2])
    assert plan(tables, budget_bytes=int(enough * 2**30), **usual)


@given(st.integers(1, 5000), st.integers(0, 5000), st.sampled_from([0.0, 0.7, 1.0, 1.2, 2.0]))
def test_expected_unique_is_bounded_and_grows(rows, lookups, exponent):
    count = expected_unique(rows, lookups, exponent)
    assert 0 <= count <= min(rows, lookups)
    assert count <= expected_unique(rows, lookups + 10, exponent) + 1e-9
    uniform = rows * (1 - (1 - 1 / rows) ** lookups) if lookups else 0.0
    assert count <= uniform * (1 + 1e-9) + 1e-9
    if exponent == 0:
        assert count == pytest.approx(uniform, rel=1e-9)


@pytest.mark.parametrize("exponent", [0.8, 1.2, 2.0])
def test_expected_unique_is_near_the_exact_sum_and_near_draws(exponent):
    rows, lookups = 3000, 5000
    weights = [k**-exponent for k in range(1, rows + 1)]
    total = sum(weights)
    exact = sum(1 - (1 - w / total) ** lookups for w in weights)
    assert expected_unique(rows, lookups, exponent) == pytest.approx(exact, rel=0.02)
    drawn = random.Random(0).choices(range(rows), weights, k=lookups)
    assert len(set(drawn)) == pytest.approx(exact, rel=0.1)


def test_a_plan_is_explained_in_text_and_json(wording):
    found = plan([TableSize("a", 10**7, 16, 10**6), TableSize("b", 7, 16)], num_ranks=8)
    wording("\n".join(explain(found)))
    document = found.to_json()
    assert document["bytes_per_rank"] == found.bytes_per_rank
    assert [t["placement"] for t in document["tables"]] == list(found.placements)


def test_costs_are_positive_numbers(wording):
    for values in ((0, 1e-6), (math.inf, 1e-6), (1e9, -1.0), (math.nan, 0)):
        refuses(wording, ValueError, partial(Costs, *values))
