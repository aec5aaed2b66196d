"""Which validation was the best, and whether it is time to stop. Pure.

Every rank keeps this account, from the same merged metrics, so all come to the same decision. It is
saved with each checkpoint: a training that was interrupted decides as one that was not.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from distrain.metrics import BinaryReport
from distrain.spec import JobSpec
from distrain.spec.sections import EarlyStoppingSpec, ValidationMetric


@dataclass(frozen=True)
class Validations:
    """What the validations of a training have shown so far.

    Attributes:
        metric: What they are judged by.
        best_step: Steps that had been taken at the best one; of equal ones, the first.
        best_value: The metric there.
        reference: The value to improve on: that of the last improvement by more than `min_delta`.
        waited: Validations in a row since then.

    >>> told = Validations("auc").after(10, 0.7, 0.01).after(20, 0.705, 0.01)
    >>> told.best_step, told.reference, told.waited
    (20, 0.7, 1)
    """

    metric: ValidationMetric
    best_step: int | None = None
    best_value: float | None = None
    reference: float | None = None
    waited: int = 0

    @classmethod
    def begin(cls, spec: JobSpec) -> "Validations | None":
        """Of a training that begins; `None` if nobody asks for the best."""
        return None if spec.best_metric is None else cls(spec.best_metric)

    @classmethod
    def resume(cls, spec: JobSpec, saved: Mapping[str, Any] | None) -> "Validations | None":
        """Of a training that goes on.

        Args:
            spec: The job as it goes on, which may judge by another metric than before.
            saved: What `to_json` gave; `None` if the checkpoint has none.
        """
        if saved is None or saved["metric"] != spec.best_metric:
            return cls.begin(spec)
        return cls(**saved)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def after(self, step: int, value: float | None, min_delta: float = 0.0) -> "Validations":
        """The account with one validation more.

        Args:
            step: Steps taken at it.
            value: The metric; `None` where the rows do not define it, which then counts for
                nothing.
            min_delta: What an improvement has to exceed.
        """
        if value is None:
            return self
        told = self
        if self.best_value is None or self._gain(value, self.best_value) > 0:
            told = replace(told, best_step=step, best_value=value)
        if self.reference is None or self._gain(value, self.reference) > min_delta:
            return replace(told, reference=value, waited=0)
        return replace(told, waited=self.waited + 1)

    def judged(
        self, step: int, report: BinaryReport, stopping: EarlyStoppingSpec | None
    ) -> "Validations":
        """The account with the metrics of one validation more, over the rows of all ranks."""
        value = getattr(report, self.metric)
        return self.after(step, value, 0.0 if stopping is None else stopping.min_delta)

    def _gain(self, value: float, over: float) -> float:
        return value - over if self.metric == "auc" else over - value


def is_over(told: Validations | None, stopping: EarlyStoppingSpec | None) -> bool:
    """Whether the training ends here, although there are steps left."""
    return told is not None and stopping is not None and told.waited >= stopping.patience
