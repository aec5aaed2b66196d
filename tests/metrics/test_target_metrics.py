"""The states of targets of every kind, counted with torch, with and without weights."""

import json
from functools import reduce

import numpy as np
import pytest
import sklearn.metrics as sk
from counted_rows import counted
from hypothesis import given, settings, strategies as st

from distrain.metrics import BinaryMetrics
from distrain.metrics.exact import DistinctScores
from distrain.metrics.regression import RegressionMetrics
from distrain.metrics.targets import STATES, TargetMetrics

CLASSES = 7
NUMBERS = st.floats(-100, 100, width=32)
WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.5])


def rows_of(kind):
    score = {
        "binary": st.one_of(NUMBERS, st.sampled_from([-20.0, 0.0, 1e-5, 20.0])),
        "regression": NUMBERS,
        "multiclass": st.lists(st.sampled_from([-3.0, 0.0, 1.5, 40.0]), min_size=CLASSES,
                               max_size=CLASSES),
    }[kind]  # fmt: skip
    label = {
        "binary": st.integers(0, 1),
        "regression": NUMBERS,
        "multiclass": st.integers(0, CLASSES - 1),
    }[kind]
    return st.lists(st.tuples(score, label, WEIGHTS), max_size=30)


KIND_AND_ROWS = st.sampled_from(sorted(STATES)).flatmap(
    lambda kind: st.tuples(st.just(kind), rows_of(kind))
)

RANKS = st.lists(st.integers(0, 3), min_size=30, max_size=30)


def arrays(kind, rows):
    shape = (len(rows), CLASSES) if kind == "multiclass" else (len(rows),)
    scores = np.array([row[0] for row in rows], np.float32).reshape(shape)
    labels, weights = (np.array([row[at] for row in rows], np.float32) for at in (1, 2))
    return scores, labels, weights


def state_of(kind, rows, weighted=True):
    return counted(kind, *arrays(kind, rows)[: 3 if weighted else 2])


def sums_of(state):
    if isinstance(state, BinaryMetrics):
        bins = [*state.negatives, *state.positives]
        return state.sums, np.array(bins)
    return state.sums, state.bins


def assert_same(one, other, rows=True):
    """Bins of float32 weights are exact; sums differ by rounding alone."""
    (sums, bins), (other_sums, other_bins) = sums_of(one), sums_of(other)
    assert (bins == other_bins).all()
    scale = max(1.0, np.abs(sums).max(initial=0))
    assert other_sums == pytest.approx(sums, rel=1e-12, abs=1e-12 * scale)
    assert not rows or one.rows == other.rows


@given(KIND_AND_ROWS, RANKS, st.permutations(range(4)))
@settings(deadline=None, max_examples=30)
def test_merging_any_partition_in_any_order_is_all_rows_at_once(kind_and_rows, ranks, order):
    kind, rows = kind_and_rows
    whole = state_of(kind, rows)
    parts = [
        state_of(kind, [row for row, r in zip(rows, ranks, strict=False) if r == rank])
        for rank in order
    ]
    nested = parts[0].merge(parts[1].merge(parts[2].merge(parts[3])))
    read = type(whole).from_json(*(json.loads(json.dumps(part.to_json())) for part in parts))
    for merged in (reduce(type(whole).merge, parts), nested, read):
        assert_same(merged, whole)


@given(KIND_AND_ROWS)
@settings(deadline=None, max_examples=30)
def test_a_weight_of_2_is_the_row_twice_and_of_0_the_row_left_out(kind_and_rows):
    kind, rows = kind_and_rows
    times = [(*row[:2], float(index % 3)) for index, row in enumerate(rows)]
    repeated = [row for row in times for _ in range(int(row[2]))]
    weighted, plain = state_of(kind, times), state_of(kind, repeated, weighted=False)
    assert_same(weighted, plain, rows=False)
    ours, theirs = weighted.compute().figures(), plain.compute().figures()
    for name, value in theirs.items():
        about = None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)
        assert ours[name] == about, name


@given(KIND_AND_ROWS)
@settings(deadline=None, max_examples=30)
def test_weights_of_1_give_the_bits_of_no_weights(kind_and_rows):
    kind, rows = kind_and_rows
    ones = state_of(kind, [(*row[:2], 1.0) for row in rows])
    bare = state_of(kind, rows, weighted=False)
    assert ones.compute() == bare.compute()


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(11)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_regression_is_scikit_learns(random, weighted):
    targets = random.gamma(2, 30, 20_000).astype(np.float32)
    predictions = (targets + random.standard_t(3, len(targets)) * 5).astype(np.float32)
    weights = random.gamma(1, 1, len(targets)).astype(np.float32) if weighted else None
    rows = [predictions, targets, *([] if weights is None else [weights])]
    found = counted("regression", *rows, parts=7).compute()
    pair = targets.astype(np.float64), predictions.astype(np.float64)
    w = {"sample_weight": weights}
    assert found.rmse == pytest.approx(sk.root_mean_squared_error(*pair, **w), rel=1e-9)
    assert found.mae == pytest.approx(sk.mean_absolute_error(*pair, **w), rel=1e-9)
    assert found.r2 == pytest.approx(sk.r2_score(*pair, **w), rel=1e-9)
    errors = pair[1] - pair[0]
    assert found.mean_error == pytest.approx(np.average(errors, weights=weights), rel=1e-9)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = np.quantile(np.abs(errors), share, method="inverted_cdf", weights=weights)
        assert getattr(found, f"abs_error_{name}") == pytest.approx(exact, rel=1 / 256)


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_are_scikit_learns(random, weighted):
    labels = random.integers(0, 12, 5000)
    logits = random.normal(0, 1, (len(labels), 12))
    logits[np.arange(len(labels)), labels] += 1
    weights = random.gamma(1, 1, len(labels)) if weighted else None
    rows = [logits, labels, *([] if weights is None else [weights])]
    found = counted("multiclass", *rows).compute()
    w = {"sample_weight": weights}
    odds = np.exp(logits)
    assert found.accuracy == pytest.approx(sk.accuracy_score(labels, logits.argmax(1), **w))
    assert found.top_5 == pytest.approx(sk.top_k_accuracy_score(labels, logits, k=5, **w))
    loss = sk.log_loss(labels, odds / odds.sum(1, keepdims=True), **w)
    assert found.log_loss == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("classes", [3, 5, 6])
def test_the_best_five_of_up_to_five_classes_are_no_metric(random, classes):
    labels = random.integers(0, classes, 100)
    logits = random.normal(0, 1, (100, classes))
    found = counted("multiclass", logits, labels)
    report = found.merge(found).compute()
    assert ("top_5" in report.figures()) == (report.top_5 is not None) == (classes > 5)
    assert report.accuracy == pytest.approx((logits.argmax(1) == labels).mean())


def test_weighted_clicks_are_scikit_learns(random):
    logits = random.normal(-2, 1.5, 30_000).astype(np.float32)
    labels = (random.random(len(logits)) < 1 / (1 + np.exp(-logits.astype(float)))).astype(int)
    weights = random.gamma(1, 1, len(logits)).astype(np.float32)
    state, exact = BinaryMetrics(), DistinctScores(weighted=True)
    state.update(logits, labels, weights)
    exact.update(logits, labels, weights)
    found = state.compute()
    auc = sk.roc_auc_score(labels, logits, sample_weight=weights)
    assert abs(found.auc - auc) <= found.auc_bound < 1e-3
    assert exact.auc() == (pytest.approx(auc, rel=1e-12), 0.0)
    precision = sk.average_precision_score(labels, logits, sample_weight=weights)
    error = abs(found.average_precision - precision)
    assert error <= found.average_precision_bound < 1e-2
    assert exact.average_precision().value == pytest.approx(precision, rel=1e-9)
    odds = 1 / (1 + np.exp(-logits.astype(np.float64)))
    loss = sk.log_loss(labels, odds, sample_weight=weights)
    assert found.log_loss == pytest.approx(loss, rel=1e-9)
    rate = np.average(labels, weights=weights)
    entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
    assert found.normalised_entropy == pytest.approx(loss / entropy, rel=1e-9)
    calibration = np.average(odds, weights=weights) / rate
    assert found.calibration == pytest.approx(calibration, rel=1e-9)
    assert (found.rows, found.positives) == (len(labels), labels.sum())


@pytest.mark.parametrize("weights", [[-1.0], [1.0, 2.0]])
def test_weights_that_cannot_be_used_are_refused_and_leave_the_state(weights, wording):
    state = BinaryMetrics()
    before = state.to_json()
    rows = np.array([0.0]), np.array([1]), np.array(weights)
    wording.refused(ValueError, lambda: state.update(*rows))
    assert state.to_json() == before


def three_targets(rows=3):
    kinds = {"price": "regression", "click": "binary", "again": "binary"}
    scores, labels = np.arange(rows) - 1.0, np.arange(rows) % 2
    return TargetMetrics({name: counted(kind, scores, labels) for name, kind in kinds.items()})


def test_the_first_binary_target_is_the_main_one():
    metrics = three_targets()
    assert (metrics.main_name, metrics.rows) == ("click", 3)
    assert list(metrics.figures()) == ["price", "again"]
    assert metrics.figures()["again"]["auc"] == metrics.main.compute().auc
    assert TargetMetrics({"price": RegressionMetrics()}).main is None


def test_targets_travel_and_merge_as_one_state(wording):
    metrics = three_targets()
    documents = [json.loads(json.dumps(metrics.to_json())) for _ in range(2)]
    nothing = TargetMetrics({}).to_json()
    read = TargetMetrics.from_json(nothing, *documents, nothing)
    assert read.rows == 6
    assert read.to_json() == metrics.merge(metrics).to_json()
    wording.refused(
        ValueError, lambda: TargetMetrics.from_json(documents[0], BinaryMetrics().to_json())
    )
    wording.refused(ValueError, lambda: TargetMetrics.from_json({**documents[0], "version": 2}))
    damaged = {**documents[0], "targets": {"price": {"kind": "regression", "version": 1}}}
    wording.refused(ValueError, lambda: TargetMetrics.from_json(damaged))


def test_states_merge_by_the_names_of_targets_in_any_order(wording):
    metrics = three_targets()
    turned = TargetMetrics(dict(reversed(metrics.states.items())))
    assert metrics.merge(turned).to_json() == metrics.merge(metrics).to_json()
    document = TargetMetrics.from_json(metrics.to_json(), turned.to_json()).to_json()
    assert document == metrics.merge(metrics).to_json()
    wording.refused(
        ValueError, lambda: metrics.merge(TargetMetrics({"price": RegressionMetrics()}))
    )


def test_one_binary_target_travels_as_its_state_alone():
    only = TargetMetrics({"click": BinaryMetrics()})
    assert only.to_json() == BinaryMetrics().to_json()
    assert TargetMetrics.from_json(only.to_json(), only.to_json()).main is not None
    assert TargetMetrics.from_json(only.to_json()).merge(only).main_name == "click"
