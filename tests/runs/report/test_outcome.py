"""The standard error of a score is the scatter of the scores of other rows."""

import numpy as np
import pytest

from distrain.runs.report.outcome import error_of_score, outcome_rows


def outcomes(classes, shift, draw, *, count=150):
    positives, negatives = classes
    share = positives / (positives + negatives)
    for _ in range(count):
        of_ones, of_zeros = draw.normal(shift, 1, positives), np.sort(draw.normal(0, 1, negatives))
        yield {
            "scored_on": "valid",
            "scored_rows": positives + negatives,
            "auc": np.searchsorted(of_zeros, of_ones).mean() / negatives,
            "log_loss": 0.5,
            "normalised_entropy": -0.5 / (share * np.log(share) + (1 - share) * np.log1p(-share)),
        }


@pytest.mark.parametrize("classes", [(20, 37), (60, 400), (400, 60), (80, 4_000), (300, 300)])
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_the_error_of_an_auc_is_the_deviation_over_other_rows(classes, shift):
    found = [*outcomes(classes, shift, np.random.default_rng(0))]
    deviation = np.std([one["auc"] for one in found])
    errors = [error_of_score(one) for one in found]
    assert {name for name, _ in errors} == {"AUC"}
    assert 0.8 * deviation < np.median([error for _, error in errors]) < 1.5 * deviation
    assert "standard error" in dict(outcome_rows(found[0]))["scored on"]


@pytest.mark.parametrize("right", [0.6, 0.9])
def test_the_error_of_an_accuracy_is_the_deviation_over_other_rows(right):
    shares = np.random.default_rng(0).binomial(300, right, 2_000) / 300
    outcome = {"scored_on": "valid", "scored_rows": 300, "targets": {"y": {"accuracy": right}}}
    name, error = error_of_score(outcome)
    assert name == "accuracy"
    assert error == pytest.approx(shares.std(), rel=0.1)


def test_many_rows_have_no_error():
    (of_few,) = outcomes((99, 2_000), 1.0, np.random.default_rng(0), count=1)
    (of_many,) = outcomes((100, 900), 1.0, np.random.default_rng(0), count=1)
    assert error_of_score(of_few)
    assert error_of_score(of_many) is None
    assert "error" not in dict(outcome_rows(of_many))["scored on"]
    assert error_of_score({"scored_on": "valid", "scored_rows": 9, "auc": None}) is None


@pytest.mark.parametrize("rows", [10, 57, 900])
def test_a_perfect_score_on_fewer_rows_has_a_larger_error(rows):
    (of_two,) = outcomes((rows // 2, rows // 2), 99.0, np.random.default_rng(0), count=1)
    of_more = {"scored_on": "valid", "scored_rows": rows, "targets": {"y": {"accuracy": 1.0}}}
    for outcome in (of_two, of_more):
        error = error_of_score(outcome)[1]
        fewer = outcome | {"scored_rows": outcome["scored_rows"] // 2}
        assert 0 < error < 0.2
        assert error_of_score(fewer)[1] > error
