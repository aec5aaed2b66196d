"""The account of windows that were scored before they were trained. Pure.

Every rank keeps it, from the same merged metrics. It is saved with each checkpoint: a training that
was interrupted ends with the account of one that was not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.metrics import BinaryMetrics


@dataclass(frozen=True)
class Progressive:
    """The number of windows that were scored, and the metrics of all their rows.

    Attributes:
        step: Steps before the last of them was scored.
    """

    windows: int = 0
    step: int | None = None
    metrics: BinaryMetrics = field(default_factory=BinaryMetrics)

    @classmethod
    def resume(cls, saved: Mapping[str, Any] | None) -> "Progressive":
        if saved is None:
            return cls()
        return cls(saved["windows"], saved["step"], BinaryMetrics.from_json(saved["metrics"]))

    def to_json(self) -> dict[str, Any] | None:
        if not self.windows:
            return None
        metrics = self.metrics.to_json()
        return {"windows": self.windows, "step": self.step, "metrics": metrics}

    def after(self, step: int, merged: BinaryMetrics) -> "Progressive":
        """The account with a window more, of all ranks' rows."""
        return Progressive(self.windows + 1, step, self.metrics.merge(merged))

    def figures(self) -> dict[str, float | None]:
        """The metrics of all windows so far; the AUC is within `auc_bound` of the exact one."""
        found = self.metrics.compute()
        names = ("rows", "auc", "auc_bound", "log_loss", "normalised_entropy", "calibration")
        return {"windows": self.windows, **{name: getattr(found, name) for name in names}}
