"""Metrics of the user's own: states that update, merge over ranks, and compute."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np


class Metric:
    """A metric of validation rows that a job spec names in `evaluate.metrics`.

    Every rank makes one without arguments, updates it with its rows, and sends its state to the
    others, who merge all of them in the order of the ranks. A subclass keeps JSON values alone as
    its attributes, of a size that does not grow with the rows; or defines the last two methods.

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
        """Add rows: float32 of `[rows]` each."""
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        """Add the rows of another; the order of merges must not matter."""
        raise NotImplementedError

    def compute(self) -> float | None:
        """The value over all rows so far; `None` where they define none."""
        raise NotImplementedError

    def to_json(self) -> Mapping[str, Any]:
        """The state as JSON values."""
        return vars(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The metric of a state, as `to_json` gave it."""
        made = cls()
        vars(made).update(state)
        return made
