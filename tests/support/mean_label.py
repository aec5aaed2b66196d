"""A metric of a user's own."""

from typing import Any

from distrain.metrics import Metric


class MeanLabel(Metric):
    """The share of clicks among the rows, which count as often as their weights say."""

    rows = clicks = 0.0

    def update(self, logits: Any, labels: Any, weights: Any = None) -> None:
        """Count some rows."""
        self.rows += float(len(labels) if weights is None else weights.sum())
        self.clicks += float((labels if weights is None else labels * weights).sum())

    def merge(self, other: Any) -> None:
        """Add the rows that another one counted."""
        self.rows, self.clicks = self.rows + other.rows, self.clicks + other.clicks

    def compute(self) -> float:
        """Return the share."""
        return self.clicks / self.rows
