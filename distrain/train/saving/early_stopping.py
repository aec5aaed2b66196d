"""Which validation was the best, and whether it is time to stop. Pure.

Every rank keeps this account, from the same merged metrics, so all come to the same decision. It is
saved with each checkpoint: a training that was interrupted decides as one that was not.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from distrain.spec import MORE_IS_BETTER, EarlyStoppingSpec, JobSpec


@dataclass(frozen=True)
class Validations:
    """The record of a training's validations.

    >>> seen = Validations("auc").after(10, 0.7, 0.01).after(20, 0.705, 0.01)
    >>> seen.best_step, seen.reference, seen.waited
    (20, 0.7, 1)
    """

    metric: str
    best_step: int | None = None  # steps before the best one; of equal ones, the first
    best_value: float | None = None
    # the value to improve on: that of the last improvement by more than `min_delta`
    reference: float | None = None
    waited: int = 0

    @classmethod
    def begin(cls, spec: JobSpec) -> "Validations | None":
        """The record of a training that begins; `None` if the job wants no best model."""
        return None if spec.best_metric is None else cls(spec.best_metric)

    @classmethod
    def resume(cls, spec: JobSpec, saved: Mapping[str, Any] | None) -> "Validations | None":
        """The record of a training that goes on; a new one where the job's metric changed."""
        if saved is None or saved["metric"] != spec.best_metric:
            return cls.begin(spec)
        return cls(**saved)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def after(self, step: int, value: float | None, min_delta: float = 0.0) -> "Validations":
        """The record with one validation more; an undefined metric counts for nothing."""
        if value is None:
            return self
        after = self
        if self.best_value is None or self._gain(value, self.best_value) > 0:
            after = replace(after, best_step=step, best_value=value)
        if self.reference is None or self._gain(value, self.reference) > min_delta:
            return replace(after, reference=value, waited=0)
        return replace(after, waited=self.waited + 1)

    def _gain(self, value: float, over: float) -> float:
        more_is_better = self.metric.rpartition(".")[2] in MORE_IS_BETTER
        return value - over if more_is_better else over - value


def is_over(seen: Validations | None, stopping: EarlyStoppingSpec | None) -> bool:
    return seen is not None and stopping is not None and seen.waited >= stopping.patience
