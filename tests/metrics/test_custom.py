"""Requirements for a user's metric."""

from typing import Any

import pytest

from distrain.errors import SpecError
from distrain.metrics import Metric
from distrain.metrics.custom import check_metric


class Plain(Metric):
    def __init__(self) -> None:
        self.rows = 0

    def update(self, logits: Any, labels: Any) -> None:
        self.rows += len(logits)

    def merge(self, other: Any) -> None:
        self.rows += other.rows

    def compute(self) -> float:
        return float(self.rows)


class Weighted(Plain):
    def update(self, logits: Any, labels: Any, weights: Any = None) -> None:
        self.rows += len(logits if weights is None else weights)


def test_a_metric_takes_weights_where_rows_have_some() -> None:
    assert check_metric("own", Plain) is Plain
    for weighted in (False, True):
        assert check_metric("own", Weighted, weighted=weighted) is Weighted
    with pytest.raises(SpecError):
        check_metric("own", Plain, weighted=True)


def test_a_metric_computes_a_number_or_none() -> None:
    for value in (None, 1, 0.5):
        kind = type("Own", (Plain,), {"compute": lambda self, value=value: value})
        assert check_metric("own", kind) is kind
    with pytest.raises(SpecError):
        check_metric("own", type("Own", (Plain,), {"compute": lambda self: "0.5"}))
