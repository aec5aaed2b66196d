"""scikit-learn estimators: `Classifier` and `Regressor`, each `distrain.fit` of a table in memory.

They go into pipelines, searches and `cross_val_score`. A fitted estimator holds its model's files,
so it is pickled and copied whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from sklearn.base import (  # type: ignore[import-untyped]
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
)
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import (  # type: ignore[import-untyped]
    check_classification_targets,
)
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from distrain.errors import DistrainError
from distrain.jobs.run_paths import RunPaths
from distrain.launch.python_api import Run, fit
from distrain.launch.reporting import LoggedProgress

Array = np.ndarray[Any, Any]

_FEWEST_TO_SPLIT = 50
_LARGEST_SEED = 2**31 - 1


class _Model:
    """A run's model as bytes; its files are written once a process, when rows are scored."""

    def __init__(self, files: Mapping[str, bytes]):
        self._files = files

    @classmethod
    def of(cls, paths: RunPaths) -> Self:
        files = [paths.summary, *(file for file in paths.model.rglob("*") if file.is_file())]
        return cls({file.relative_to(paths.root).as_posix(): file.read_bytes() for file in files})

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files}

    @cached_property
    def _folder(self) -> TemporaryDirectory[str]:
        folder = TemporaryDirectory(prefix="distrain-model-")
        for name, content in self._files.items():
            file = Path(folder.name) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder

    @cached_property
    def run(self) -> Run:
        return Run(self._folder.name)


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, training on a table, and a model that is pickled."""

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
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _checked(self, X: Any, y: Any, **arguments: Any) -> tuple[dict[str, Any], Array]:
        """The columns of the rows to train on, by name, and the targets, `[rows]`."""
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        if hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
            return _columns_of(X), column_or_1d(y, warn=True)
        array, target = validate_data(self, X, y, ensure_min_samples=2, **_ANY, **arguments)
        return _columns_of(array), column_or_1d(target, warn=True)

    def _fit(self, columns: dict[str, Any], target: Array, weight: Any, task: str) -> None:
        """Train on columns by their names; `target` are numbers."""
        draw = check_random_state(self.random_state)
        rows, share = len(target), self.validation_fraction or 0.0
        names = [_unused(name, columns) for name in ("target", "weight", "for_validation")]
        table = columns | {names[0]: target}
        if weight is not None:
            table[names[1]] = weight
        valid: Any = False
        if share and rows >= _FEWEST_TO_SPLIT:
            chosen = draw.permutation(rows) < max(1, round(rows * share))
            table[names[2]] = chosen.astype(np.int64)
            valid = {"by": "column", "column": names[2], "equals": 1}
        seed = int(draw.randint(_LARGEST_SEED))
        with TemporaryDirectory(prefix="distrain-fit-") as place:
            try:
                run = fit(
                    table,
                    target=names[0],
                    task=task,
                    valid=valid,
                    weight=None if weight is None else names[1],
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
    """Predicts one of two or more classes of rows.

    Args:
        model: A model by name, or a section `model` of a job spec; `None`: one that suits the
            table.
        validation_fraction: The share of the rows, drawn by chance, that ends training early and
            chooses the best weights. Fewer than 50 rows, or `None`: all rows train.
        overrides: Fields of the job spec, by their paths: `{"train.epochs": 5}`.
        random_state: Draws validation rows, initial weights and the order of rows.

    Attributes:
        classes_: The classes, in the order of `predict_proba`.
        n_iter_: The steps that were trained.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows.

        Args:
            X: A DataFrame of any columns, or an array, `[rows, features]`; NaN is a missing value.
            y: Their classes, `[rows]`.
            sample_weight: Their weights, `[rows]`, 0 or more; `None`: all weigh the same.

        Raises:
            ValueError: The rows cannot be used.
        """
        columns, target = self._checked(X, y)
        check_classification_targets(target)
        self.classes_, numbers = np.unique(target, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier needs two classes, and the rows have one class")
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        self._fit(columns, numbers, _weights(sample_weight, target), task)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the classes' probabilities, `[rows, classes]`, float32."""
        found: Array = self._scored(X, lambda run, rows: run.predict_proba(rows, raw=True))
        return found

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row, `[rows]`."""
        places = self.predict_proba(X).argmax(axis=1)
        found: Array = self.classes_[places]
        return found


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Predicts a number of rows; parameters and `n_iter_` are those of `Classifier`."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows; `y` are their numbers, `[rows]`, the rest is as of `Classifier.fit`."""
        columns, target = self._checked(X, y, y_numeric=True)
        numbers = np.asarray(target, np.float64)
        self._fit(columns, numbers, _weights(sample_weight, target), "regression")
        return self

    def predict(self, X: Any) -> Array:
        """Return the predictions, `[rows]`, float32."""
        found: Array = self._scored(
            X, lambda run, rows: run.predict(rows, raw=True)["prediction"].to_numpy()
        )
        return found


_ANY: Mapping[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan"}


def _columns_of(X: Any) -> dict[str, Any]:
    """The columns of a table, or of an array, by their names."""
    if hasattr(X, "columns"):
        return {str(name): X[name] for name in X.columns}
    return {str(place): X[:, place] for place in range(X.shape[1])}


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _weights(sample_weight: Any, target: Array) -> Any:
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, target, ensure_non_negative=True)
