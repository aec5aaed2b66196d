"""docs/any-table.md's guide, from `--infer` to scores, on a table of the test and on a real one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

TRAIN = {
    "train.global_batch_size": 4096,
    "train.epochs": 2,
    "model.hidden": [64, 32],
    "train.optimizer.kind": "adam",
    "train.optimizer.lr": 0.002,
    "resources.backend": "inline",
}


@pytest.fixture
def distrain(tmp_path: Path) -> Callable[..., str]:
    """Runs the command in the test's folder."""

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "distrain", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def auc_of(scores: Path) -> float:
    """The chance that a row with label 1 scores above one with label 0, by ranks."""
    table = pq.read_table(scores)
    labels = table["label"].to_numpy() == 1
    ranks = np.argsort(np.argsort(table["probability"].to_numpy(), kind="stable"), kind="stable")
    positive = labels.sum()
    above = ranks[labels].sum() - positive * (positive - 1) / 2
    return float(above / positive / (len(labels) - positive))


@pytest.mark.slow
def test_from_a_real_log_to_scores(
    distrain: Callable[..., str], tmp_path: Path, shared_data: Path
) -> None:
    log = shared_data / "online_retail" / "online_retail_first80pct.csv.gz"
    if not log.is_file():
        pytest.skip("the log of the shop is not among the real data")
    distrain("prep", log, "--infer", "--out", "features.yaml")
    document = yaml.safe_load((tmp_path / "features.yaml").read_text())
    document["target"] = {"column": "Quantity", "at_least": 12}
    document["split"] = {"by": "time", "column": "InvoiceDate", "from": "2011-05-01"}
    (tmp_path / "features.yaml").write_text(yaml.safe_dump(document))
    distrain("prep", log, "--config", "features.yaml", "--out", "prepared")
    distrain("init", "criteo-mlp", "--data", "prepared", "--out", "job.yaml")
    options = [word for key, value in TRAIN.items() for word in ("--set", f"{key}={value}")]
    distrain("train", "job.yaml", "--run-dir", "run", *options)
    distrain("predict", "run", "prepared/valid", "--out", "scores", "--keep", "label")
    kinds = {name: column["kind"] for name, column in document["columns"].items()}
    assert "InvoiceNo" not in kinds
    assert (kinds["StockCode"], kinds["UnitPrice"]) == ("categorical", "continuous")
    assert pq.read_table(tmp_path / "scores").num_rows == 19_941
    assert auc_of(tmp_path / "scores") > 0.85
