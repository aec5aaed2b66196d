import math

import numpy as np
import pytest

from distrain.prep.synthetic.draw import (
    CATEGORIES,
    CHUNK_ROWS,
    INTEGERS,
    draw_features,
    raw_category,
)
from distrain.prep.synthetic.planted import PlantedModel, Truth, probabilities

SCALE = 0.01


@pytest.fixture(scope="module")
def features():
    return draw_features(5, "train", 0, SCALE)


@pytest.fixture(scope="module", params=[0.03, 0.25])
def labelled(request, features):
    model = PlantedModel.fit(5, SCALE, request.param)
    logits = model.logits(features)
    labels = (features.coin < probabilities(logits)).astype(np.int32)
    return request.param, logits, labels


def test_chunks_are_pure_functions_of_their_place(features):
    again = draw_features(5, "train", 0, SCALE)
    assert all((again.ids[name] == ids).all() for name, ids in features.ids.items())
    for other in (
        draw_features(6, "train", 0, SCALE),
        draw_features(5, "valid", 0, SCALE),
        draw_features(5, "train", 1, SCALE),
    ):
        assert (other.ids["C1"] != features.ids["C1"]).any()


def test_missing_shares_are_those_of_the_real_logs(features):
    for column in (*INTEGERS, *CATEGORIES):
        share = features.missing[column.name].mean() if column.missing else 0.0
        deviation = math.sqrt(column.missing * (1 - column.missing) / CHUNK_ROWS)
        assert abs(share - column.missing) <= 5 * deviation
    assert (features.missing["C14"] == features.missing["C23"]).all()
    assert (features.missing["I6"] | ~features.missing["I7"]).all()


def test_ids_stay_below_their_cardinality_and_short_columns_are_used_up(features):
    for column in CATEGORIES:
        ids, cardinality = features.ids[column.name], column.cardinality(SCALE)
        assert ids.min() == 0
        assert ids.max() < cardinality
        if cardinality <= 100:
            assert len(np.unique(ids)) == cardinality
    assert {c.name: c.cardinality(1.0) for c in CATEGORIES}["C20"] == 10_000_000


def test_categories_are_skewed_as_zipf_says(features):
    for column in CATEGORIES:
        power, cardinality = 1 - column.exponent, column.cardinality(SCALE)
        counts = np.bincount(features.ids[column.name], minlength=cardinality)
        edges = np.arange(1, cardinality + 2, dtype=np.float64) ** power
        shares = np.diff(edges) / (edges[-1] - edges[0])
        head = slice(0, 5)
        deviation = np.sqrt(shares * (1 - shares) * CHUNK_ROWS)
        assert (np.abs(counts - shares * CHUNK_ROWS)[head] <= 5 * deviation[head]).all()


def test_raw_categories_are_different_for_different_ids():
    ids = np.arange(300_000, dtype=np.int32)
    for column in (0, 25):
        assert len(np.unique(raw_category(column, ids))) == len(ids)
    assert (raw_category(0, ids) != raw_category(1, ids)).all()


def test_labels_follow_their_probabilities(labelled):
    _, logits, labels = labelled
    p = probabilities(logits)
    order = np.argsort(p)
    for part in np.array_split(order, 10):
        deviation = math.sqrt((p[part] * (1 - p[part])).sum())
        assert abs(labels[part].sum() - p[part].sum()) <= 4.5 * deviation


def test_the_click_rate_is_what_was_asked_for(labelled):
    click_rate, logits, _ = labelled
    p = probabilities(logits)
    assert abs(p.mean() - click_rate) <= 5 * p.std() / math.sqrt(CHUNK_ROWS)


def test_bayes_scores_agree_with_the_true_probabilities(labelled):
    _, logits, labels = labelled
    logits, labels = logits[:3000], labels[:3000]
    truth = Truth()
    truth.update(logits[:1000], labels[:1000])
    truth.update(logits[1000:], labels[1000:])
    found = truth.summary(("file",))
    p = probabilities(logits)
    weights = np.outer(p, 1 - p)
    np.fill_diagonal(weights, 0.0)
    order = (p[:, None] > p[None, :]) + 0.5 * (p[:, None] == p[None, :])
    assert abs(found.bayes_auc - (weights * order).sum() / weights.sum()) <= found.bayes_auc_bound
    assert found.bayes_auc_bound < 1e-3
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    assert found.bayes_log_loss == pytest.approx(entropy, rel=1e-9)
    assert found.expected_click_rate == pytest.approx(p.mean(), rel=1e-12)
    assert found.clicks == labels.sum()
