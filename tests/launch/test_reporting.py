"""Lines about a job's progress show the loss, and the metrics that the target has."""

from dataclasses import replace

import pytest
from kept_runs import record_of, view_of

from distrain.launch.reporting import LoggedProgress

CLASSES = {"stars": {"accuracy": 0.5, "log_loss": 1.25}}
NUMBERS = {"price": {"rmse": 2.5, "mae": 2.0, "r2": 0.5}}
NONE = {"loss": None, "auc": None, "normalised_entropy": None}
RECALL = {"recall_at_10": 0.25}


def lines_of(record, **fields):
    lines = []
    LoggedProgress(lines.append).show(view_of(records=(record,), **fields))
    (line,) = [line for line in lines if "step" in line]
    return line


@pytest.mark.parametrize(
    ("fields", "shown", "hidden"),
    [
        ({"loss": 0.5, "auc": 0.75}, ["loss 0.5000", "AUC 0.7500"], "accuracy"),
        ({"loss": 3.5, "auc": None}, ["loss 3.5000"], "AUC"),
        ({"loss": 3.5, "auc": 0.5, "own": RECALL}, ["loss 3.5000", "0.25000"], "AUC"),
        ({**NONE, "targets": CLASSES}, ["loss 1.2500", "stars accuracy 0.5"], "AUC"),
        ({**NONE, "targets": NUMBERS}, ["price RMSE 2.5"], "AUC"),
    ],
)
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_line_has_the_loss_and_no_metric_that_is_not_defined(split, fields, shown, hidden):
    line = lines_of(replace(record_of(10, split), **fields))
    assert all(text in line for text in shown), line
    assert hidden not in line


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"loss": 0.5, "auc": 0.75}, "refit, training loss 0.5000"),
        ({**NONE, "targets": CLASSES}, "refit, training loss 1.2500"),
        ({**NONE, "targets": NUMBERS}, "refit, training price RMSE 2.5"),
    ],
)
def test_a_line_of_a_refit_has_only_the_loss(fields, shown):
    refit = {"step": 5, "found_step": 5, "num_steps": 20, "total_rows": 100}
    line = lines_of(replace(record_of(10), **fields), refit=refit)
    assert shown in line
    assert "AUC" not in line
    assert "accuracy" not in line
