"""AUC and average precision from ordered scores, against scikit-learn and naive loops."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from distrain.metrics.exact import DistinctScores
from distrain.metrics.grouped import grouped_metrics

# What bins cannot tell apart: logits beyond them, within one of them, and of both zeros.
SCORES = st.one_of(
    st.sampled_from([-80.0, -17.0, -0.0, 0.0, 1e-30, 17.0, 80.0, 3e38]),
    st.floats(16, 80, width=32),
    st.floats(0, 2**-11, width=32),
)
ROWS = st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 3)), min_size=1, max_size=80)


def arrays(rows):
    scores, labels, parts = zip(*rows, strict=True)
    return np.array(scores, np.float32), np.array(labels, np.float32), np.array(parts)


def counted(scores, labels, cuts=(), max_entries=1_000):
    found = DistinctScores(max_entries)
    for part, truth in zip(np.split(scores, cuts), np.split(labels, cuts), strict=True):
        found.update(part, truth)
    return found


@given(ROWS, st.integers(0, 80))
@settings(deadline=None, max_examples=30)
def test_both_are_exact_and_do_not_depend_on_how_rows_come(rows, cut):
    scores, labels, _ = arrays(rows)
    found = counted(scores, labels, [min(cut, len(scores))])
    if len(set(labels.tolist())) < 2:
        assert found.auc() is found.average_precision() is None
        return
    assert found.auc().value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    precision = average_precision_score(labels, scores)
    assert found.average_precision().value == pytest.approx(precision, abs=1e-12)
    assert found.auc().bound == found.average_precision().bound == 0.0


@given(ROWS, st.integers(1, 10), st.integers(0, 80))
@settings(deadline=None, max_examples=30)
@example([(80.0, True, 0), (80.00001, False, 0), (17.0, True, 0), (80.0, False, 0)], 2, 1)
def test_with_too_many_distinct_scores_the_bounds_hold(rows, max_entries, cut):
    scores, labels, _ = arrays(rows)
    found = counted(scores, labels, [min(cut, len(scores))], max_entries)
    assert len(found.keys) <= max_entries
    assert found.negatives.sum() + found.positives.sum() == len(rows)
    assert (found.shift > 0) == (len(np.unique(scores + 0.0)) > max_entries)
    if len(set(labels.tolist())) < 2:
        return
    auc, precision = found.auc(), found.average_precision()
    assert abs(auc.value - roc_auc_score(labels, scores)) <= auc.bound + 1e-12
    error = abs(precision.value - average_precision_score(labels, scores))
    assert error <= precision.bound + 1e-12


def test_scores_that_cannot_be_ordered_are_refused_and_change_nothing(wording):
    found = counted(np.array([1.0, 2.0]), np.array([0, 1]))
    wording.refused(ValueError, lambda: found.update(np.array([np.nan]), np.array([1])))
    wording.refused(ValueError, lambda: found.update(np.array([1.0, 2.0]), np.array([1])))
    found.coarsen(0)  # as many as are dropped already
    wording.refused(ValueError, lambda: found.coarsen(-1))
    assert found.auc().value == 1.0


def naive_auc(scores, labels):
    above = scores[labels == 1][:, None] - scores[labels == 0]
    return ((above > 0) + 0.5 * (above == 0)).mean()


@given(ROWS)
@settings(deadline=None, max_examples=30)
def test_groups_have_the_auc_of_their_own_rows(rows):
    scores, labels, groups = arrays(rows)
    scores = scores.astype(np.float64)
    found = grouped_metrics(groups, scores, labels)
    kept, weights = [], []
    held = np.unique(groups)
    assert found.groups == len(held)
    for index, group in enumerate(held):
        own, truth = scores[groups == group], labels[groups == group]
        assert (found.rows[index], found.positives[index]) == (len(own), truth.sum())
        chance = 1 / (1 + np.exp(-np.clip(own, -90, 90)))
        if np.abs(own).max() < 18:  # scikit-learn takes probabilities, rounded near 1
            assert found.log_loss[index] == pytest.approx(log_loss(truth, chance, labels=[0, 1]))
        if truth.any():
            assert found.calibration[index] == pytest.approx(chance.sum() / truth.sum())
        if len(set(truth.tolist())) < 2:
            assert np.isnan(found.auc[index])
            continue
        assert found.auc[index] == pytest.approx(naive_auc(own, truth))
        kept.append(found.auc[index])
        weights.append(len(own))
    assert (found.scored_groups, found.scored_rows) == (len(kept), sum(weights))
    if not kept:
        assert found.grouped_auc is found.mean_auc is None
        return
    assert found.grouped_auc == pytest.approx(np.average(kept, weights=weights))
    assert found.mean_auc == pytest.approx(np.mean(kept))


@given(ROWS, st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_weight_of_2_is_the_row_twice_and_one_of_0_is_no_row(rows, seed):
    scores, labels, groups = arrays(rows)
    weights = np.random.default_rng(seed).integers(0, 4, len(scores))
    found = grouped_metrics(groups, scores, labels, weights.astype(np.float32))
    again = np.repeat(np.arange(len(scores)), weights)
    alike = grouped_metrics(groups[again], scores[again], labels[again])
    np.testing.assert_array_equal(found.auc, alike.auc)
    np.testing.assert_array_equal(found.numbers, alike.numbers)
    assert (found.grouped_auc, found.mean_auc) == (alike.grouped_auc, alike.mean_auc)
    assert found.rows.sum() == (weights > 0).sum()


def test_groups_of_any_weights_have_the_auc_of_their_pairs():
    draw = np.random.default_rng(5)
    groups, labels = draw.integers(0, 300, 5_000), draw.integers(0, 2, 5_000)
    scores, weights = draw.integers(0, 9, 5_000) / 8, draw.random(5_000) ** 4
    found = grouped_metrics(groups, scores, labels, weights)
    for number, auc in zip(found.numbers.tolist(), found.auc.tolist(), strict=True):
        own = groups == number
        hits, misses = own & (labels == 1), own & (labels == 0)
        above = scores[hits][:, None] - scores[misses]
        won = weights[hits] @ ((above > 0) + (above == 0) / 2) @ weights[misses]
        expected = won / (weights[hits].sum() * weights[misses].sum())
        assert auc == pytest.approx(expected, abs=1e-12)
