"""Recall and its kin against loops over sets."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.metrics.ranking import NO_ITEM, ItemLists, RankingMetrics, TopItems, top_items


def lists_of(sets):
    values = np.array([item for items in sets for item in items], np.int64)
    return ItemLists(values, np.cumsum([0, *(len(items) for items in sets)]))


def naive_top(scores, k, excluded):
    left = [item for item in range(len(scores)) if item not in excluded]
    return sorted(left, key=lambda item: (-scores[item], item))[:k]


def naive_means(rankings, relevant, k):
    rows = []
    for shown, wanted in zip(rankings, relevant, strict=True):
        if not wanted:
            continue
        hits = [place for place, item in enumerate(shown[:k]) if item in wanted]
        best = sum(1 / math.log2(place + 2) for place in range(min(k, len(wanted))))
        gain = sum(1 / math.log2(place + 2) for place in hits)
        found = len(hits)
        rows.append(
            (
                found / len(wanted),
                found / min(k, len(wanted)),
                float(found > 0),
                gain / best,
                1 / (1 + hits[0]) if hits else 0.0,
            )
        )
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else [None] * 5


item_sets = st.sets(st.integers(0, 11), max_size=12)


@settings(deadline=None, max_examples=20)
@given(
    users=st.lists(st.tuples(st.integers(0, 2**31), item_sets, item_sets), max_size=6),
    k=st.integers(1, 14),
)
def test_equals_loops(users, k):
    # Few different scores, so that most are equal to another.
    draws = [np.random.default_rng(seed).integers(0, 4, 12) / 4 for seed, _, _ in users]
    scores = np.array(draws).reshape(len(users), 12)
    excluded, relevant = [e for _, e, _ in users], [r for _, _, r in users]
    ranked = top_items(scores, k, lists_of(excluded))
    naive = [naive_top(*case) for case in zip(scores, [k] * len(users), excluded, strict=True)]
    assert ranked.shape == (len(users), k)
    assert [[i for i in row if i != NO_ITEM] for row in ranked.tolist()] == naive
    metrics = RankingMetrics(k, shown=np.zeros(12, bool))
    metrics.update(ranked, lists_of(relevant))
    report = metrics.compute()
    seen = {item for row, wanted in zip(naive, relevant, strict=True) if wanted for item in row}
    assert report.coverage == (len(seen) / 12 if report.users else None)
    assert report.users == sum(map(bool, relevant))
    means = [report.recall, report.capped_recall, report.hit_rate, report.ndcg, report.mrr]
    assert means == pytest.approx(naive_means(naive, relevant, k))


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    cuts=st.sets(st.integers(1, 11), max_size=4),
    excluded=st.lists(item_sets, min_size=3, max_size=3),
    k=st.integers(1, 14),
)
def test_chunks_of_items_change_nothing(seed, cuts, excluded, k):
    rng = np.random.default_rng(seed)
    scores, order = rng.integers(0, 4, (3, 12)) / 4, rng.permutation(12)
    top = TopItems(3, k)
    for chunk in np.split(order, sorted(cuts)):
        top.update(scores[:, chunk], chunk, lists_of(excluded))
    assert np.array_equal(top.ranked, top_items(scores, k, lists_of(excluded)))


def test_merged_shares_are_the_whole():
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((40, 30))
    relevant = [set(rng.choice(30, rng.integers(0, 6), replace=False)) for _ in range(40)]
    ranked = top_items(scores, 5)
    whole, first, second = (RankingMetrics(5, shown=np.zeros(30, bool)) for _ in range(3))
    whole.update(ranked, lists_of(relevant))
    first.update(ranked[:13], lists_of(relevant[:13]))
    second.update(ranked[13:], lists_of(relevant[13:]))
    merged = first.merge(second)
    assert merged.users == whole.users
    np.testing.assert_allclose(merged.sums, whole.sums, rtol=1e-14)
    assert merged.compute().coverage == whole.compute().coverage
    assert first.users < merged.users  # neither share was changed


def test_what_cannot_be_counted_is_refused():
    metrics, wanted = RankingMetrics(2), lists_of([[1], [2]])
    over_four = RankingMetrics(1, shown=np.zeros(4, bool))
    for refused in (
        lambda: metrics.update(np.zeros((2, 1), np.int64), wanted),  # fewer than k
        lambda: metrics.update(np.array([[1, 2], [3, 3]]), wanted),  # an item twice
        lambda: metrics.merge(RankingMetrics(3)),
        lambda: metrics.merge(RankingMetrics(2, shown=np.zeros(4, bool))),
        lambda: over_four.update(np.array([[9]]), lists_of([[1]])),
        lambda: top_items(np.array([[math.nan]]), 1),
        lambda: RankingMetrics(0),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            refused()
    assert (metrics.compute().users, metrics.compute().recall) == (0, None)
