"""The scikit-learn estimators: its own checks, and equality with `distrain.fit`."""

import pickle

import numpy as np
import pandas as pd
import pytest

sklearn = pytest.importorskip("sklearn", reason="the extra 'sklearn' is not installed")

from sklearn.datasets import load_iris  # noqa: E402
from sklearn.model_selection import KFold, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import distrain  # noqa: E402
from distrain.sklearn import Classifier, Regressor  # noqa: E402

FEW = {"train.epochs": 2}

# Why a check does not apply.
NOT_FOR_US = {
    "check_sample_weight_equivalence_on_dense_data": "steps of drawn rows differ where rows repeat",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_scikit_learns_own_checks_pass(kind):
    estimator = kind(overrides={"train.epochs": 30})
    check_estimator(estimator, expected_failed_checks=NOT_FOR_US, on_skip=None)


def test_folds_are_separate_fits_of_tables_with_texts_and_gaps():
    draw = np.random.default_rng(0)
    rows = 240
    table = pd.DataFrame(
        {
            "shop": [f"shop-{number}" for number in draw.integers(0, 5, rows)],
            "price": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(size=rows)),
        },
        index=draw.permutation(rows),
    )
    classes = np.array(["no", "yes", "perhaps"])[draw.integers(0, 3, rows)]
    numbers = table["price"].fillna(0) * 3 + draw.normal(size=rows)
    folds = KFold(3, shuffle=True, random_state=0)
    for estimator, target in (
        (Classifier(overrides=FEW), classes),
        (Regressor(overrides=FEW), numbers),
    ):
        found = cross_val_score(
            make_pipeline(FunctionTransformer(), estimator), table, target, cv=folds
        )
        expected = []
        for train, test in folds.split(table):
            fitted = type(estimator)(overrides=FEW).fit(
                table.iloc[train], np.asarray(target)[train]
            )
            expected.append(fitted.score(table.iloc[test], np.asarray(target)[test]))
        assert found.tolist() == expected


def test_an_estimator_is_fit_of_the_same_table_and_is_pickled_whole(tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    estimator = Classifier(validation_fraction=None, overrides=FEW, random_state=3)
    names = np.array(["a", "b", "c"])
    estimator.fit(X, names[y], sample_weight=weights)
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    run = distrain.fit(
        X.assign(target=y, weight=weights), target="target", task="multiclass", valid=False,
        weight="weight", overrides={"train.seed": seed, **FEW}, run_dir=tmp_path / "run",
    )  # fmt: skip
    assert np.array_equal(estimator.predict_proba(X), run.predict_proba(X))
    found = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(found.predict(X), names[run.predict_proba(X).argmax(1)])
    for wrong in (X.iloc[:, :2], X.rename(columns=str.upper)):
        with pytest.raises(ValueError, match="feature"):
            estimator.predict(wrong)
