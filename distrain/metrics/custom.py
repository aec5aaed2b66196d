"""User-defined metrics: states that update, merge over ranks, and compute."""

import inspect
import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, Self

import numpy as np

from distrain.errors import DistrainError, SpecError


class Metric:
    """A metric of validation rows that a job spec names in `evaluate.metrics`.

    Every rank creates an object without arguments, updates it with its rows, and sends its state to
    the other ranks. Each rank merges all states, in the order of the ranks. The attributes of a
    subclass must be JSON values; otherwise the subclass also defines `to_json` and `from_json`. The
    size of the state must not grow with the rows.

    >>> class Accuracy(Metric):
    ...     rows = right = 0
    ...     def update(self, logits, labels):
    ...         self.rows += len(labels)
    ...         self.right += int(((logits > 0) == (labels > 0.5)).sum())
    ...     def merge(self, other):
    ...         self.rows, self.right = self.rows + other.rows, self.right + other.right
    ...     def compute(self):
    ...         return self.right / self.rows if self.rows else None
    >>> accuracy = Accuracy()
    >>> accuracy.update(np.array([-1.0, 2.0]), np.array([0.0, 0.0]))
    >>> accuracy.merge(Accuracy.from_json(accuracy.to_json()))
    >>> accuracy.rows, accuracy.compute()
    (4, 0.5)
    """

    def update(self, logits: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        """Add rows: the scores and labels of the job's first binary target, float32 `[rows]` each.

        If no target is binary, they are those of the first target; the scores of a multiclass
        target are `[rows, classes]`. In a job with weights there is a third argument, the rows'
        weights, 0 or more: a weight of 2 counts a row twice, and a weight of 0 ignores it.
        """
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        """Add the rows of another object; the order of merges must not matter."""
        raise NotImplementedError

    def compute(self) -> float | None:
        """Return the value over all rows so far; `None` or a non-finite number if undefined."""
        raise NotImplementedError

    def to_json(self) -> Mapping[str, Any]:
        """Return the state as JSON values."""
        return vars(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return the metric of a state from `to_json`."""
        made = cls()
        vars(made).update(state)
        return made


@contextmanager
def metric_errors(name: str) -> Iterator[None]:
    """Return a context that turns errors of a user's metric into `SpecError`.

    The error has the metric's name and the failing line. `DistrainError` and `MemoryError` are not
    changed.
    """
    try:
        yield
    except (DistrainError, MemoryError):
        raise
    except Exception as error:  # of arbitrary user code
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise SpecError(
            f"metric {name!r} failed: {type(error).__name__}: {error}",
            where={"at": f"{frame.filename}:{frame.lineno}, in {frame.name}"},
            hint="Correct its class; distrain.metrics.Metric documents the arguments.",
        ) from error


def check_metric(name: str, kind: Any, *, weighted: bool = False) -> type[Metric]:
    """Try a user's metric on a few made-up rows, and return its class.

    Args:
        name: The metric's name in the job spec, for errors.
        kind: The user's class; any other object is rejected.
        weighted: Whether its rows will have weights.

    Raises:
        SpecError: `kind` is not a subclass of `Metric`, a method fails, the state has values that
            are not JSON, `compute` returns neither a number nor `None`, or `update` does not
            accept weights although rows have some.
    """
    if not (isinstance(kind, type) and issubclass(kind, Metric)):
        what = (
            f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        )
        raise SpecError(
            f"metric {name!r} is {what}, not a subclass of distrain.metrics.Metric",
            hint="Derive it from distrain.metrics.Metric, and give the class, not an object.",
        )
    with metric_errors(name):
        one = kind()
        rows = np.array([[-1, 2, 0.5], [0, 1, 0], [1, 0.5, 2]], np.float32)[: 3 if weighted else 2]
        if weighted and not _takes(one.update, *rows):
            raise SpecError(
                f"metric {name!r} does not support weights, and this job's rows have weights",
                hint="Give its update a third argument: "
                "def update(self, logits, labels, weights=None).",
            )
        one.update(*rows)
        state = one.to_json()
        for attribute, value in state.items():
            if not _is_json(value):
                raise SpecError(
                    f"metric {name!r}: its attribute {attribute!r} holds a "
                    f"{type(value).__name__} that is not a JSON value",
                    hint="Keep numbers, texts, lists and mappings by text, as int(...), float(...) "
                    "or .tolist() give them; or define to_json and from_json.",
                )
        text = json.dumps(state)
        total = kind.from_json(json.loads(text))
        total.merge(kind.from_json(json.loads(text)))
        found = total.compute()
    if found is not None and not isinstance(found, Real):
        raise SpecError(
            f"metric {name!r}: compute() gives a {type(found).__name__}, not a number or None"
        )
    return kind


def _takes(method: Callable[..., None], *arguments: Any) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return False
    return True


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)
