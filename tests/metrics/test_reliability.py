"""Reliability curves against a naive sort of the rows."""

import numpy as np
import pytest

from distrain.metrics import BinaryMetrics
from distrain.metrics.bins import bin_of
from distrain.metrics.reliability import reliability


def test_groups_are_those_of_the_sorted_rows() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(-3.0, 1.0, 40_000).astype(np.float32)
    labels = rng.random(40_000) < 1 / (1 + np.exp(-logits.astype(np.float64)))
    metrics = BinaryMetrics()
    metrics.update(logits, labels)
    found = reliability(metrics.negatives, metrics.positives)
    assert found is not None
    assert len(found["rows"]) == 20
    assert sum(found["rows"]) == 40_000
    assert max(found["rows"]) < 2_100, "groups are alike"
    assert found["predicted"] == sorted(found["predicted"])
    order = np.argsort(bin_of(logits), kind="stable")
    probabilities = (1 / (1 + np.exp(-logits.astype(np.float64))))[order]
    first = 0
    for group, rows in enumerate(int(rows) for rows in found["rows"]):
        inside = slice(first, first + rows)
        assert found["predicted"][group] == pytest.approx(probabilities[inside].mean(), rel=5e-4)
        assert found["observed"][group] == pytest.approx(labels[order][inside].mean())
        # The labels were drawn by these probabilities.
        assert abs(found["observed"][group] - found["predicted"][group]) < 0.03
        first += rows


def test_scores_that_are_all_alike_are_one_group_and_no_rows_are_none() -> None:
    metrics = BinaryMetrics()
    assert reliability(metrics.negatives, metrics.positives) is None
    metrics.update(np.zeros(8), np.array([0, 1] * 4))
    found = reliability(metrics.negatives, metrics.positives)
    assert found is not None
    assert (found["rows"], found["observed"]) == ([8], [0.5])
    assert found["predicted"] == pytest.approx([0.5], abs=1e-3)
