"""scikit-learn estimators: `Classifier`, `Regressor` and `Ranker`, each `distrain.fit` of a table.

They work in pipelines, searches and `cross_val_score`. A fitted estimator contains its model's
files, so it can be pickled and copied.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import ndcg_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from distrain.errors import DistrainError
from distrain.jobs.run_paths import RunPaths
from distrain.launch.python_api import Run, fit
from distrain.launch.reporting import LoggedProgress

if TYPE_CHECKING:
    from distrain.prep.features.inference.user_choices import Task

Array = np.ndarray[Any, Any]

_FEWEST_TO_SPLIT = 50
_LARGEST_SEED = 2**31 - 1
_ANY: Mapping[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan"}


class _Model:
    """The files of a run's model as bytes, by path in the run folder.

    A process writes them to a temporary run folder when it first scores rows.
    """

    def __init__(self, files: Mapping[str, bytes]):
        self._files = files

    @classmethod
    def of(cls, paths: RunPaths) -> Self:
        files = [paths.summary, *(file for file in paths.model.rglob("*") if file.is_file())]
        return cls({file.relative_to(paths.root).as_posix(): file.read_bytes() for file in files})

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files}

    @cached_property
    def run(self) -> Run:
        # Not a TemporaryDirectory, which warns when its owner is collected.
        folder = Path(tempfile.mkdtemp(prefix="distrain-model-"))
        weakref.finalize(self, _remove, folder, os.getpid())
        for name, content in self._files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return Run(folder)


def _remove(folder: Path, maker: int) -> None:
    """Remove a folder, unless this process is a fork of the process that made it."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: their common parameters, training and scoring."""

    def __init__(
        self,
        *,
        model: Mapping[str, Any] | str | None = None,
        validation_fraction: float | None = 0.1,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = 0,
    ):
        self.model = model
        self.validation_fraction = validation_fraction
        self.overrides = overrides
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _checked(self, X: Any, y: Any, **arguments: Any) -> tuple[dict[str, Any], Array]:
        """Return the columns of the training rows by name, and the targets, `[rows]`.

        `arguments` are further arguments of `validate_data`, used if `X` is not a DataFrame.
        Raises `ValueError` as scikit-learn's estimators do, for example if `y` is `None`.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        if hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
            target = check_array(y, ensure_2d=False, dtype=None)
        else:
            X, target = validate_data(self, X, y, ensure_min_samples=2, **_ANY, **arguments)
        target = column_or_1d(target, warn=True)
        if target.dtype == object and any(value is None for value in target):
            raise ValueError("Input y contains NaN.")  # as for a missing number
        return _columns_of(X), target

    def _fit(
        self,
        columns: dict[str, Any],
        target: Array,
        sample_weight: Any,
        task: Task,
        for_validation: Callable[[float, np.random.RandomState], Array],
    ) -> None:
        """Train on columns and numeric targets.

        Args:
            for_validation: Called with the share of validation rows and a random generator;
                returns the mask of the validation rows, `[rows]`, bool. Not called if the share is
                0, or there are fewer than 50 rows.

        Raises:
            ValueError: `validation_fraction` or a weight is invalid, or `distrain.fit` fails with
                a `DistrainError`.
        """
        draw, share = check_random_state(self.random_state), self.validation_fraction or 0.0
        if not 0 <= share < 1:
            raise ValueError(f"validation_fraction must be in [0, 1) or None, and is {share}")
        names = [_unused(name, columns) for name in ("target", "weight", "for_validation")]
        table = columns | {names[0]: target}
        if sample_weight is not None:
            table[names[1]] = _check_sample_weight(sample_weight, target, ensure_non_negative=True)
        valid: Any = False
        if share and len(target) >= _FEWEST_TO_SPLIT:
            chosen = for_validation(share, draw)
            if chosen.any():
                table[names[2]] = chosen.astype(np.int64)
                valid = {"by": "column", "column": names[2], "equals": 1}
        seed = int(draw.randint(_LARGEST_SEED))
        with tempfile.TemporaryDirectory(prefix="distrain-fit-") as place:
            try:
                run = fit(
                    table,
                    target=names[0],
                    task=task,
                    valid=valid,
                    weight=False if sample_weight is None else names[1],
                    model=self.model,
                    overrides={"train.seed": seed, **(self.overrides or {})},
                    run_dir=Path(place) / "run",
                    progress=LoggedProgress(),
                    curves=False,
                )
            except DistrainError as error:
                raise ValueError(str(error)) from error
            self.n_iter_ = run.summary.steps
            self._model = _Model.of(RunPaths(run.run_dir))

    def _scored(self, X: Any, score: Callable[[Run, dict[str, Any]], Any]) -> Any:
        check_is_fitted(self, "n_iter_")
        if hasattr(X, "columns"):
            validate_data(self, X, reset=False, skip_check_array=True)
        else:
            X = validate_data(self, X, reset=False, **_ANY)
        try:
            return score(self._model.run, _columns_of(X))
        except DistrainError as error:
            raise ValueError(str(error)) from error


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Predicts one of two or more classes.

    Args:
        model: The name of a model, or the section `model` of a job spec; `None` chooses a model
            that suits the table.
        validation_fraction: The share of validation rows, drawn at random from each class. They
            decide when training stops early, and which weights are kept. With `None`, 0, or fewer
            than 50 rows, all rows are trained on.
        overrides: Fields of the job spec, by path: `{"train.epochs": 5}`.
        random_state: The seed or generator, as in scikit-learn, that draws the validation rows,
            the initial weights and the order of rows.

    Attributes:
        classes_: The classes, in the order of `predict_proba`.
        n_iter_: The number of training steps.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows.

        Args:
            X: A DataFrame of any columns, or an array, `[rows, features]`; NaN is a missing value.
            y: The classes of the rows, `[rows]`.
            sample_weight: The weights of the rows, `[rows]`, 0 or more; `None` for equal weights.

        Raises:
            ValueError: The rows cannot be used.
        """
        columns, target = self._checked(X, y)
        check_classification_targets(target)
        self.classes_, numbers = np.unique(target, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier needs two classes, and the rows have one class")
        task: Task = "binary" if len(self.classes_) == 2 else "multiclass"
        self._fit(columns, numbers, sample_weight, task, partial(_drawn, numbers))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the class probabilities, `[rows, classes]`, float32, in the order of `classes_`.

        Raises `NotFittedError` before `fit`, and `ValueError` if the rows cannot be scored.
        """
        probabilities: Array = self._scored(X, lambda run, rows: run.predict_proba(rows, raw=True))
        return probabilities

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row, `[rows]`, one of `classes_`."""
        scores = self.predict_proba(X)  # raises `NotFittedError` before there are classes
        classes: Array = self.classes_[scores.argmax(axis=1)]
        return classes


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Predicts numbers.

    Parameters and `n_iter_` are as in `Classifier`; validation rows are drawn from all rows.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows with numbers `y`, `[rows]`; otherwise like `Classifier.fit`."""
        columns, target = self._checked(X, y, y_numeric=True)
        numbers = np.asarray(target, np.float64)
        one_stratum = np.zeros(len(numbers))
        self._fit(columns, numbers, sample_weight, "regression", partial(_drawn, one_stratum))
        return self

    def predict(self, X: Any) -> Array:
        """Return the predictions, `[rows]`, float32."""
        predictions: Array = self._scored(
            X, lambda run, rows: run.predict(rows, raw=True)["prediction"].to_numpy()
        )
        return predictions


class Ranker(_Estimator):
    """Ranks the rows of each group, such as the items of a search, by predicted relevance.

    The loss is pointwise: cross entropy if the relevances are 0 and 1, otherwise squared error.
    Validation rows are whole groups. Parameters and `n_iter_` are as in `Classifier`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, qid: Any = None) -> Self:
        """Train on rows.

        Args:
            X: As in `Classifier.fit`.
            y: The relevances of the rows, `[rows]`, 0 or more.
            sample_weight: As in `Classifier.fit`.
            qid: The groups of the rows, `[rows]`, in any order; `None` if each row is a group.

        Raises:
            ValueError: The rows cannot be used.
        """
        columns, target = self._checked(X, y, y_numeric=True)
        numbers = _relevances(target)
        groups = np.arange(len(numbers)) if qid is None else _groups(qid, numbers)

        def drawn(share: float, draw: np.random.RandomState) -> Array:
            return _drawn(np.zeros(groups.max() + 1), share, draw)[groups]

        task: Task = "binary" if np.array_equal(np.unique(numbers), [0, 1]) else "regression"
        self._fit(columns, numbers, sample_weight, task, drawn)
        return self

    def predict(self, X: Any) -> Array:
        """Return the predicted relevances, `[rows]`, float32; higher rows rank first in a group."""

        def relevance(run: Run, rows: dict[str, Any]) -> Any:
            scores = run.predict(rows, raw=True)
            return scores["probability" if "probability" in scores else "prediction"].to_numpy()

        relevances: Array = self._scored(X, relevance)
        return relevances

    def score(self, X: Any, y: Any, qid: Any = None) -> float:
        """Return the mean NDCG of the groups whose rows differ in relevance.

        Args:
            qid: The groups of the rows, `[rows]`; `None` for one group.

        Raises:
            ValueError: The rows cannot be used, or no group has rows that differ in relevance.
        """
        scores, relevances = self.predict(X), _relevances(column_or_1d(y))
        check_consistent_length(scores, relevances)
        places = _groups(np.zeros(len(scores)) if qid is None else qid, relevances)
        order = np.argsort(places, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(places[order])) + 1)
        found = [
            ndcg_score([relevances[rows]], [scores[rows]])
            for rows in groups
            if np.ptp(relevances[rows]) > 0
        ]
        if not found:
            raise ValueError("no group has rows of different relevance, so there is no NDCG")
        return float(np.mean(found))


def _columns_of(X: Any) -> dict[str, Any]:
    """Return the columns of a DataFrame or an array by name; an array's names are "0", "1", ...

    Raises `ValueError` if two columns of a DataFrame have the same name.
    """
    if not hasattr(X, "columns"):
        return {str(place): X[:, place] for place in range(X.shape[1])}
    names = [str(name) for name in X.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"columns of X need different names; used twice: {', '.join(twice)}")
    return dict(zip(names, (X[name] for name in X.columns), strict=True))


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _drawn(strata: Array, share: float, draw: np.random.RandomState) -> Array:
    """Draw a share of the rows of each stratum at random.

    Returns the mask of drawn rows, `[rows]`, bool. `strata` has the number of each row's stratum,
    such as its class, `[rows]`. At least one row of each stratum is not drawn.
    """
    order = draw.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    bounds = np.floor(np.arange(len(order) + 1) * share + draw.random_sample())
    is_first = np.diff(strata[order], prepend=np.nan) != 0
    chosen = np.zeros(len(order), bool)
    chosen[order] = (np.diff(bounds) > 0) & ~is_first
    return chosen


def _relevances(y: Any) -> Array:
    relevances = np.asarray(y, np.float64)
    if (relevances < 0).any():
        raise ValueError("Negative values in y: relevances must be 0 or more")
    return relevances


def _groups(qid: Any, rows: Array) -> Array:
    """Return the number, from 0, of each row's group: `[rows]`."""
    check_consistent_length(qid, rows)
    places: Array = np.unique(column_or_1d(qid), return_inverse=True)[1]
    return places
