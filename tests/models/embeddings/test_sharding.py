"""The plan of tables: laws, figures, and a search through all placements."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from distrain.errors import SpecError
from distrain.models.embeddings.sharding.distinct_rows import expected_unique
from distrain.models.embeddings.sharding.placing import COLLECTIVE_BYTES, plan_placements
from distrain.models.embeddings.sharding.plan import explain
from distrain.models.embeddings.sharding.table_bytes import RankShare, RowBytes, TableSize

WORDS = ("replicated", "row_wise", "host_cached")
SHARE = RankShare(4, 1000, RowBytes("sgd"))

table_lists = st.lists(
    st.tuples(
        st.integers(1, 200_000),
        st.sampled_from([1, 4, 16]),
        st.none() | st.floats(0, 50_000),
    ),
    min_size=1,
    max_size=5,
).map(lambda sizes: [TableSize(f"C{i}", *size) for i, size in enumerate(sizes)])
rows = st.builds(
    RowBytes,
    st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
    st.sampled_from([2, 4]),
    st.booleans(),
)
shares = st.builds(RankShare, st.integers(1, 9), st.integers(1, 65_536), rows)
overriding = st.dictionaries(st.just("C0"), st.sampled_from(WORDS))
budgets = st.none() | st.integers(0, 30_000_000)


def plan(tables, share=SHARE, *, budget_bytes=None, **options):
    return plan_placements(tables, share, budget_bytes=budget_bytes, **options)


def plan_or_none(*request, **options):
    try:
        return plan(*request, **options)
    except SpecError:
        return None


def naive_bytes(table, placement, share):
    """What a rank that owns most of a table's rows holds, row by row, wherever the table starts."""
    row = share.row
    values = {"sgd": 0, "adagrad": table.dim, "rowwise_adagrad": 1, "adam": 2 * table.dim}
    of_row = row.weight_bytes_per_value * table.dim + 4 * values[row.optimizer]
    if row.averaged:  # a gap in fp32, and the weights that averages replace
        of_row += (4 + row.weight_bytes_per_value) * table.dim
    owned = -(-table.rows // share.num_ranks)
    if placement == "host_cached":
        owned = min(owned, math.ceil(table.unique(share.batch_rows)))
    return of_row * (table.rows if placement == "replicated" else owned)


def naive_sent(table, placement, share):
    """The documented formulas, written out."""
    ranks, unique, row = share.num_ranks, table.unique(share.batch_rows), 4 * table.dim
    if placement == "replicated":
        return (ranks - 1) * unique * (row + 4)
    return (ranks - 1) / ranks * unique * (2 * row + 4)


@settings(deadline=None)
@given(table_lists, shares, overriding, budgets)
def test_a_plan_keeps_the_budget_or_is_refused_and_adds_up(tables, share, overrides, budget):
    found = plan_or_none(tables, share, budget_bytes=budget, overrides=overrides)
    if found is None:
        assert budget is not None
        return
    assert found == plan(tables, share, budget_bytes=budget, overrides=overrides)
    assert [t.name for t in found.tables] == [t.name for t in tables]
    pairs = list(zip(tables, found.placements, strict=True))
    assert found.bytes_per_rank == sum(naive_bytes(*pair, share) for pair in pairs)
    assert budget is None or found.bytes_per_rank <= budget
    sent = sum(naive_sent(*pair, share) for pair in pairs)
    assert found.total("sent_bytes") == pytest.approx(sent)
    if share.num_ranks == 1:
        assert set(found.placements) <= {"replicated", "host_cached"}
        assert sent == 0
    assert all(table.why for table in found.tables)
    assert explain(found)


@settings(deadline=None)
@given(table_lists, shares, overriding, budgets, budgets)
def test_a_bigger_budget_never_shards_more(tables, share, overrides, one, other):
    small, large = sorted((one, other), key=lambda b: math.inf if b is None else b)
    tight = plan_or_none(tables, share, budget_bytes=small, overrides=overrides)
    loose = plan_or_none(tables, share, budget_bytes=large, overrides=overrides)
    if tight is None:
        return
    assert loose is not None
    sharded = [
        {t.name for t in found.tables if t.placement == "row_wise"} for found in (loose, tight)
    ]
    assert sharded[0] <= sharded[1]


@given(table_lists, shares, overriding, budgets)
@settings(max_examples=30, deadline=None)
def test_what_fits_in_any_placement_is_never_refused(tables, share, overrides, budget):
    share = replace(share, num_ranks=share.num_ranks + 1)
    found = plan_or_none(tables, share, budget_bytes=budget, overrides=overrides)
    choices = [[overrides[t.name]] if t.name in overrides else WORDS[:2] for t in tables]
    least = min(
        sum(naive_bytes(t, p, share) for t, p in zip(tables, placements, strict=True))
        for placements in itertools.product(*choices)
    )
    assert (found is None) == (budget is not None and least > budget)


@given(table_lists, shares)
@settings(deadline=None)
def test_widths_are_row_wise_where_that_saves_more_than_a_collective(tables, share):
    share = replace(share, num_ranks=share.num_ranks + 2)
    found = plan(tables, share)
    for dim in {table.dim for table in tables}:
        own = [table for table in tables if table.dim == dim]
        whole, dealt = (sum(naive_sent(t, p, share) for t in own) for p in WORDS[:2])
        word = "row_wise" if whole - dealt > COLLECTIVE_BYTES["cpu"] else "replicated"
        assert {table.placement for table in found.tables if table.dim == dim} == {word}


def test_two_ranks_shard_only_for_memory():
    tables = [TableSize("a", 10**6, 16, 10**6), TableSize("b", 10**6, 8, 10**6)]
    share = replace(SHARE, num_ranks=2)
    assert plan(tables, share).placements == ("replicated", "replicated")
    # The width that frees most memory goes first.
    found = plan(tables, share, budget_bytes=70_000_000)
    assert found.placements == ("row_wise", "replicated")
    assert plan(tables, share, budget_bytes=50_000_000).placements == ("row_wise",) * 2
    # A captured step sends all that it has capacity for, which is less where tables are dealt.
    captured = replace(SHARE, num_ranks=2, batch_rows=4096, captured=True)
    long = [TableSize("a", 2_000_000, 16), TableSize("b", 300_000, 16)]
    assert plan(long, replace(captured, captured=False)).placements == ("replicated",) * 2
    assert plan(long, captured).placements == ("row_wise",) * 2


def test_wanted_and_overrides_outrank_the_rule():
    tables = [TableSize("a", 1000, 16), TableSize("b", 10**7, 16, 10**6)]
    for word in WORDS:
        found = plan(tables, wanted=word, overrides={"b": "replicated"})
        assert found.placements == (word, "replicated")
        assert "embeddings.placement" in found.tables[0].why
        assert "embeddings.tables" in found.tables[1].why


def test_a_host_cached_table_takes_the_hosts_memory_and_a_steps_rows():
    (table,) = plan([TableSize("a", 1000, 16, 60)], wanted="host_cached").tables
    assert (table.weight_bytes, table.host_bytes) == (60 * 64, 250 * 64)


def test_tables_that_do_not_fit_are_refused_with_ways_to_fit_them(wording):
    big, small = TableSize("big", 1 << 20, 16), TableSize("small", 10, 16)
    adagrad, adam = (RankShare(1, 1000, RowBytes(kind)) for kind in ("adagrad", "adam"))
    mib = 1 << 20
    wording.refused(
        SpecError,
        lambda: plan([big, small], adagrad, budget_bytes=80 * mib),
        lambda: plan([big], adam, budget_bytes=40 * mib),
        lambda: plan([TableSize("user_id", 10, 4)], overrides={"user_idd": "row_wise"}),
    )


def test_what_is_offered_fits():
    tables = [TableSize("big", 999_999, 16), TableSize("other", 12_345, 4)]
    budget, share = 20 << 20, RankShare(2, 1000, RowBytes("adam"))
    with pytest.raises(SpecError) as caught:
        plan(tables, share, budget_bytes=budget, wanted="replicated")
    text = str(caught.value)
    ranks = int(text.partition("row-wise on ")[2].partition(" ranks")[0])
    for number, fits in ((ranks, True), (ranks - 1, False)):
        on_ranks = replace(share, num_ranks=number)
        found = plan_or_none(tables, on_ranks, budget_bytes=budget, wanted="row_wise")
        assert (found is not None) is fits
    width = int(text.partition("embedding dimensions of at most ")[2].partition(" ")[0])
    for most, fits in ((width, True), (width + 1, False)):
        narrow = [TableSize(t.name, t.rows, min(t.dim, most)) for t in tables]
        found = plan_or_none(narrow, share, budget_bytes=budget, wanted="replicated")
        assert (found is not None) is fits
    enough = float(text.partition("embeddings.memory_gib: ")[2])
    assert plan(tables, share, budget_bytes=int(enough * 2**30), wanted="replicated")


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
    tables = [TableSize("a", 10**7, 16, 10**6), TableSize("b", 7, 16)]
    found = plan(tables, replace(SHARE, num_ranks=8, row=RowBytes("sgd", averaged=True)))
    wording("\n".join(explain(found)))
    document = found.to_json()
    assert document["bytes_per_rank"] == found.bytes_per_rank
    assert [t["placement"] for t in document["tables"]] == list(found.placements)
