import base64
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from distrain.metrics import BinaryMetrics, BinaryReport
from distrain.metrics.bins import add_packed, pack_counts
from distrain.metrics.report import average_precision

# Few distinct values make ties, close ones share a bin, far ones lie beyond the outermost bins.
LOGITS = st.one_of(
    st.sampled_from([-40.0, -16.0, 0.0, 1e-5, 2e-5, 1.0, 16.0, 16.5, 1e30]),
    st.floats(-20, 20, width=32),
    st.floats(0, 2**-9, width=32),
)
ROWS = st.lists(st.tuples(LOGITS, st.booleans()), max_size=60)


def arrays(rows):
    logits = np.array([logit for logit, _ in rows], np.float64)
    return logits, np.array([label for _, label in rows], np.float32)


def state_of(rows):
    metrics = BinaryMetrics()
    metrics.update(*arrays(rows))
    return metrics


@given(ROWS)
@settings(deadline=None, max_examples=50)
def test_the_bounds_hold_against_naive_oracles(rows):
    logits, labels = arrays(rows)
    found = state_of(rows).compute()
    assert (found.rows, found.positives) == (len(rows), int(labels.sum()))
    assert rows or found == BinaryReport(0, 0)
    if len(set(labels.tolist())) < 2:
        assert found.auc is found.auc_bound is found.average_precision is None
        assert found.normalised_entropy is None
        return
    assert abs(found.auc - roc_auc_score(labels, logits)) <= found.auc_bound + 1e-12
    precision = average_precision_score(labels, logits)
    error = abs(found.average_precision - precision)
    assert error <= found.average_precision_bound + 1e-12


@given(ROWS, st.integers(0, 60), st.sampled_from(["none", "first", "second", "both"]))
@settings(deadline=None, max_examples=30)
def test_rows_that_are_weighted_are_counted_whatever_their_weights(rows, cut, weighted):
    parts = []
    for part, own in ((rows[:cut], "first"), (rows[cut:], "second")):
        one, (logits, labels) = BinaryMetrics(), arrays(part)
        has_weights = weighted in (own, "both")
        one.update(logits, labels, np.full(len(part), 0.25, np.float32) if has_weights else None)
        parts.append(one)
    found = parts[0].merge(parts[1])
    positives = sum(label for _, label in rows)
    assert found.counted in ((len(rows), positives), None)
    assert (found.counted is None) == (weighted == "none")


def test_one_class_has_a_loss_but_no_area():
    found = state_of([(0.0, False), (0.0, False)]).compute()
    assert found.log_loss == pytest.approx(np.log(2))
    assert found.auc is found.average_precision is found.calibration is None
    assert state_of([(2.0, True)]).compute().calibration == pytest.approx(1 / (1 + np.exp(-2)))


def test_extreme_logits_have_finite_losses():
    found = state_of([(1e30, False), (-1e30, True), (1e30, True), (-1e30, False)]).compute()
    assert found.log_loss == pytest.approx(5e29)
    assert found.calibration == pytest.approx(1.0)
    assert found.auc == 0.5


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([0.0, np.nan], [0, 1]),
        ([0.0, 1.0, -np.inf], [0, 1, 0]),
        ([0.0, 1.0], [0, 2]),
        ([0.0, 1.0], [np.nan, 0]),
        ([0.0, 1.0], [0]),
        ([[0.0]], [[1]]),
    ],
)
def test_unusable_rows_are_named_and_nothing_is_counted(logits, labels, wording):
    metrics = BinaryMetrics()
    wording.refused(ValueError, lambda: metrics.update(np.array(logits), np.array(labels)))
    assert metrics.rows == 0


def test_damaged_documents_are_refused(wording):
    good = BinaryMetrics()
    good.negatives[[0, 7, 65_535]] = 1, 2, 3
    good = good.to_json()
    packed = good["negatives"]
    beyond = pack_counts(np.ones(65_536, np.int64)) | {"gaps": text_of([2] + [1] * 65_535)}
    for damage in (
        {"version": 1},
        {"num_bins": 200},
        {"kind": "regression"},
        {"negatives": {**packed, "gaps": "not base64!"}},
        {"negatives": {**packed, "counts": "AQ=="}},  # fewer than bins
        {"negatives": {**packed, "counts": packed["counts"] + "AQID"}},
        {"negatives": {**packed, "dtype": "O"}},
        {"negatives": {**packed, "dtype": "<u8"}},  # not of whole counts
        {"negatives": {"gaps": text_of([1, 0]), "dtype": "<u1", "counts": text_of([1, 1])}},
        {"negatives": None},
        {"negatives": {}},
        {"log_loss_sum": None},
        {"negatives": {**packed, "gaps": ""}},
        {"negatives": {**packed, "counts": ""}},
        {"negatives": beyond},
    ):
        for documents in ([{**good, **damage}], [good, {**good, **damage}]):
            wording.refused(ValueError, partial(BinaryMetrics.from_json, *documents))


def text_of(values):
    return base64.b64encode(bytes(values)).decode()


FULL = dict.fromkeys(range(65_536), 300)
WIDTHS = [FULL, *({5: peak} for peak in (255, 256, 65_536, 2**32))]
FILLED = st.dictionaries(st.integers(0, 65_535), st.integers(1, 2**40), max_size=200)


@given(
    st.lists(
        st.one_of(
            FILLED,
            st.sampled_from([{}, {3: 1}, {65_535: 300}, {0: 1, 255: 2, 511: 3}, *WIDTHS]),
        ),
        max_size=6,
    )
)
def test_adding_packed_counts_equals_adding_counts(several):
    into, expected, packed = np.arange(65_536), np.arange(65_536), []
    for filled in several:
        counts = np.zeros(65_536, np.int64)
        counts[list(filled)] = list(filled.values())
        expected += counts
        packed.append(pack_counts(counts))
        assert pack_counts(counts.astype(float)) == packed[-1]  # so are whole weights
    add_packed(into, packed)
    assert (into == expected).all()


def naive_precision_bounds(negatives, positives):
    """Least, estimated and greatest average precision, a bin and a positive at a time."""
    low = estimate = high = above = false = 0.0
    for n, p in zip(negatives[::-1], positives[::-1], strict=True):
        for i in range(1, p + 1):
            low += (above + i) / (above + i + false + n)
            high += (above + p) / (above + p + false)
        middle = above + (p + 1) / 2
        estimate += p * middle / (middle + false + n / 2)
        above, false = above + p, false + n
    return low / above, estimate / above, high / above


BINS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6)


@given(BINS.filter(lambda bins: any(p for _, p in bins)))
@settings(deadline=None, max_examples=50)
def test_the_precision_of_a_bins_rows_in_any_order_lies_within_the_bound(bins):
    negatives, positives = np.array(bins, np.int64).T
    value, bound = average_precision(negatives, positives)
    low, estimate, high = naive_precision_bounds(negatives.tolist(), positives.tolist())
    assert value - bound <= low + 1e-12
    assert high <= value + bound + 1e-12
    assert value <= high + 1e-12
    assert value == pytest.approx(estimate, abs=0.5 / positives.sum())


def test_calibration_error_is_the_distance_of_predictions_from_what_came_true():
    metrics = BinaryMetrics()
    logits = np.repeat([-2.0, 1.0], [300, 100])
    labels = np.concatenate([np.arange(300) < 60, np.arange(100) < 50])
    metrics.update(logits, labels)
    apart = [abs(1 / (1 + np.exp(2.0)) - 0.2), abs(1 / (1 + np.exp(-1.0)) - 0.5)]
    found = metrics.compute().calibration_error
    assert found == pytest.approx((300 * apart[0] + 100 * apart[1]) / 400, abs=1e-4)
    metrics.update(logits, labels, np.full(400, 2.0))
    assert metrics.compute().calibration_error == pytest.approx(found)
