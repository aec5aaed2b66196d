"""The validation that is shown is that of the saved model, which may be an earlier one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain import fit
from distrain.jobs.job_view import AttemptStarted
from distrain.runs.report.comparison import compare
from distrain.runs.report.outcome import outcome_rows
from distrain.runs.run_data import read_run_data
from distrain.scheduler.history.job_history import JobHistory
from distrain.schema import ColumnSchema, Schema, Tags

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped early, since it learns its few rows by heart."""
    root, rng = tmp_path_factory.mktemp("kept"), np.random.default_rng(0)
    for part in ("train", "valid"):
        ids = rng.integers(3, 200, 400).astype(np.int32)
        label = (rng.random(400) < 0.5).astype(np.float32)
        (root / part).mkdir()
        pq.write_table(pa.table({"label": label, "user": ids}), root / part / "a.parquet")
    tags = (Tags.CATEGORICAL,)
    label, user = (ColumnSchema("label", "float32", (Tags.TARGET, Tags.BINARY)),
                   ColumnSchema("user", "int32", tags, 200, 8))  # fmt: skip
    Schema((label, user)).save(root / "schema.json")
    job = {
        "data": {"train": str(root / "train"), "valid": str(root / "valid")},
        "model": {"kind": "mlp", "hidden": [8]},
        "train": {
            "global_batch_size": 100,
            "epochs": 30,
            "optimizer": {"kind": "adam", "lr": 0.05},
            "early_stopping": {"metric": "log_loss", "patience": 2},
        },
        "evaluate": {"every_steps": 4},
        "resources": {"backend": "inline", "device": "cpu"},
    }
    fit(job, run_dir=root / "r")
    return root / "r"


def test_report_and_comparison_show_the_figures_of_the_summary(run: Path) -> None:
    data = read_run_data(run)
    summary = data.summary
    assert summary["stopped_early"]
    assert summary["model_step"] < data.valid[-1].step
    rows = dict(outcome_rows(data.outcome))
    assert rows["AUC"].startswith(f"{summary['auc']:.5f}")
    shown = {name: text for name, text in compare([data]).outcomes}  # noqa: C416
    assert shown["AUC"] == rows["AUC"]
    assert shown["saved step"].startswith(f"{summary['model_step']}; stopped early at step ")


def test_job_lists_show_the_validation_of_the_saved_model(run: Path) -> None:
    valid, history = read_run_data(run).valid, JobHistory(0.0)
    history.take([AttemptStarted(1, 0, 1, "", ""), *valid], 1.0)
    assert history.valid_of(None) == valid[-1]
    found = history.valid_of(valid[0].step)
    assert found == replace(valid[0], reliability=None)
    history.take([AttemptStarted(2, valid[0].step, 1, "", "")], 2.0)
    assert history.valid_of(valid[1].step) is None
