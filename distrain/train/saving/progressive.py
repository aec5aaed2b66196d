"""The account of windows that were scored before they were trained. Pure.

Every rank keeps it, from the same merged metrics. It is saved with each checkpoint: a training that
was interrupted ends with the account of one that was not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.metrics import TargetMetrics


@dataclass(frozen=True)
class Progressive:
    """The number of windows that were scored, and the metrics of all their rows."""

    windows: int = 0
    step: int | None = None  # steps before the last of them was scored
    metrics: TargetMetrics = field(default_factory=lambda: TargetMetrics({}))

    @classmethod
    def resume(cls, saved: Mapping[str, Any] | None) -> "Progressive":
        if saved is None:
            return cls()
        return cls(saved["windows"], saved["step"], TargetMetrics.from_json(saved["metrics"]))

    def to_json(self) -> dict[str, Any] | None:
        if not self.windows:
            return None
        metrics = self.metrics.to_json()
        return {"windows": self.windows, "step": self.step, "metrics": metrics}

    def after(self, step: int, merged: TargetMetrics) -> "Progressive":
        """The account with a window more, of all ranks' rows."""
        return Progressive(self.windows + 1, step, self.metrics.merge(merged))

    def figures(self) -> dict[str, float | None]:
        """The metrics of all windows so far; the AUC is within `auc_bound` of the exact one."""
        main = self.metrics.main
        of_main = {} if main is None else main.compute().figures()
        others = self.metrics.figures().items()
        of_targets = {f"{name}.{metric}": v for name, one in others for metric, v in one.items()}
        return {"windows": self.windows, "rows": self.metrics.rows, **of_main, **of_targets}
