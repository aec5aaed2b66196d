"""The scikit-learn estimators: its own checks, and equality with `distrain.fit`."""

import gc
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

sklearn = pytest.importorskip("sklearn", reason="the extra 'sklearn' is not installed")

from sklearn.datasets import (  # noqa: E402
    load_iris,
)
from sklearn.metrics import ndcg_score  # noqa: E402
from sklearn.model_selection import GroupKFold, KFold, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import distrain  # noqa: E402
from distrain.sklearn import Classifier, Ranker, Regressor, _drawn  # noqa: E402

FEW = {"train.epochs": 2}

# Why a check does not apply.
NOT_FOR_US = {
    "check_sample_weight_equivalence_on_dense_data": "steps of drawn rows differ where rows repeat",
}


@pytest.mark.release
@pytest.mark.parametrize("kind", [Classifier, Regressor, Ranker])
def test_scikit_learns_own_checks_pass(kind):
    estimator = kind(overrides={"train.epochs": 30})
    check_estimator(estimator, expected_failed_checks=NOT_FOR_US, on_skip=None)


@pytest.mark.slow
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
    check_folds(Classifier, table, classes)
    check_folds(Regressor, table, numbers, num_folds=1)


def check_folds(kind, table, target, num_folds=2):
    folds = list(KFold(2, shuffle=True, random_state=0).split(table))[:num_folds]
    pipeline = make_pipeline(FunctionTransformer(), kind(overrides=FEW))
    found = cross_val_score(pipeline, table, target, cv=folds)
    expected = []
    for train, test in folds:
        fitted = kind(overrides=FEW).fit(table.iloc[train], np.asarray(target)[train])
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
    folder = estimator._model.run.run_dir
    del estimator
    gc.collect()
    assert not folder.exists()
    for wrong in (X.iloc[:, :2], X.rename(columns=str.upper)):
        with pytest.raises(ValueError, match="feature"):
            found.predict(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_an_estimator_is_fit_with_the_validation_rows_and_the_seed_that_it_draws(kind, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    target = y if kind is Classifier else X.pop("petal width (cm)")
    estimator = kind(validation_fraction=0.2, overrides=FEW, random_state=5).fit(X, target)
    draw = np.random.RandomState(5)
    strata = y.to_numpy() if kind is Classifier else np.zeros(len(y))
    chosen = _drawn(strata, 0.2, draw).astype(int)
    run = distrain.fit(
        X.assign(target=target, chosen=chosen), target="target",
        task="multiclass" if kind is Classifier else "regression",
        valid={"by": "column", "column": "chosen", "equals": 1},
        overrides={"train.seed": int(draw.randint(2**31 - 1)), **FEW}, run_dir=tmp_path / "run",
    )  # fmt: skip
    if kind is Classifier:
        assert np.array_equal(estimator.predict_proba(X), run.predict_proba(X))
    else:
        assert np.array_equal(estimator.predict(X), run.predict(X)["prediction"])


@pytest.mark.slow
def test_a_ranker_validates_and_scores_whole_groups():
    draw = np.random.default_rng(0)
    groups = draw.integers(0, 40, 200).astype(str)
    X = draw.normal(size=(200, 2))
    y = np.clip(np.round(X[:, 0]), 0, 2)
    folds = list(GroupKFold(2).split(X, y, groups))[:1]
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = Ranker(overrides=FEW).set_fit_request(qid=True).set_score_request(qid=True)
        found = cross_val_score(ranker, X, y, cv=folds, params={"qid": groups})
    for score, (train, test) in zip(found, folds, strict=True):
        fitted = Ranker(overrides=FEW).fit(X[train], y[train], qid=groups[train])
        of_groups = []
        for group in sorted(set(groups[test])):
            rows = test[groups[test] == group]
            if len(set(y[rows])) > 1:
                of_groups.append(ndcg_score([y[rows]], [fitted.predict(X[rows])]))
        assert score == pytest.approx(np.mean(of_groups))
    clicks = Ranker(overrides=FEW).fit(X, y > 0, qid=groups).predict(X)
    assert ((clicks > 0) & (clicks < 1)).all()


@given(
    classes=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_validation_rows_are_a_share_of_each_class_and_never_a_whole_class(classes, share, seed):
    strata = np.array(classes)
    chosen = _drawn(strata, share, np.random.RandomState(seed))
    for one in set(classes):
        rows = int((strata == one).sum())
        assert rows * share - 2 < chosen[strata == one].sum() < min(rows, rows * share + 1)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_folds_in_parallel_give_the_scores_of_one_after_another(backend):
    X, y = load_iris(return_X_y=True)
    estimator = Classifier(overrides=FEW)
    expected = cross_val_score(estimator, X, y, cv=2)
    with joblib.parallel_backend(backend, n_jobs=2):
        assert cross_val_score(estimator, X, y, cv=2).tolist() == expected.tolist()
