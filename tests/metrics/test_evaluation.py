"""What `run.evaluate` returns: the metrics of each kind of target, the important ones first."""

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from counted_rows import counted

from distrain.metrics.evaluation import Evaluation
from distrain.metrics.report import BinaryReport
from distrain.metrics.targets import TargetMetrics

LEADING = {
    "binary": ["auc", "log_loss"],
    "regression": ["rmse", "r2"],
    "multiclass": ["accuracy", "log_loss"],
}


def evaluation(*kinds: str) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation of random rows with targets of these kinds, and each target's report."""
    draw = np.random.default_rng(0)
    states = {}
    for place, kind in enumerate(kinds):
        scores = draw.normal(size=(60, 3)) if kind == "multiclass" else draw.normal(size=60)
        states[f"t{place}"] = counted(kind, scores, draw.integers(0, 2, 60))
    metrics = TargetMetrics(states)
    main = metrics.main
    report = BinaryReport(60, 0) if main is None else main.compute()
    whole = BinaryReport(**{**vars(report), "targets": metrics.figures()})
    named = [(name, state.kind) for name, state in metrics.states.items()]
    reports = {name: state.compute() for name, state in metrics.states.items()}
    return Evaluation.of(whole, named), reports


@pytest.mark.parametrize(
    ("kinds", "main"),
    [
        (("binary",), 0),
        (("regression",), 0),
        (("multiclass",), 0),
        (("regression", "multiclass"), 0),
        (("regression", "binary", "binary"), 1),
    ],
)
def test_an_evaluation_has_the_metrics_of_its_main_target_and_of_all_targets(
    kinds: tuple[str, ...], main: int
) -> None:
    found, reports = evaluation(*kinds)
    assert (found.rows, found.target) == (60, f"t{main}")
    assert found.targets.keys() == reports.keys()
    for name, report in reports.items():
        figures = report.figures()
        assert figures.items() <= found.targets[name].items()
        if name == found.target:
            assert {metric: getattr(found, metric) for metric in figures} == figures
            assert {*figures} <= {*dir(found)}
    for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert copied == found
    leading = LEADING[kinds[main]]
    assert list(found.targets[found.target])[:2] == leading
    shown = [re.sub("_", " ", metric) for metric in leading]
    assert re.match(f"<{shown[0]} [0-9.e-]+, {shown[1]} [0-9.e-]+", str(found))
    assert str(found) == repr(found)


def test_a_metric_of_another_kind_of_target_is_an_attribute_error() -> None:
    found, _ = evaluation("regression")
    assert not hasattr(found, "auc")
    assert not hasattr(evaluation("multiclass")[0], "rmse")
