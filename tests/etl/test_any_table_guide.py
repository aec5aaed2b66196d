"""docs/any-table.md's guide, from `--infer` to scores, on a table of the test and on a real one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from distrain.etl import FeatureConfig

TRAIN = {
    "train.global_batch_size": 512,
    "train.epochs": 6,
    "model.hidden": [32],
    "train.optimizer.kind": "adam",
    "train.optimizer.lr": 0.005,
    "resources.backend": "inline",
}
OF_MANY_ROWS = {
    "train.global_batch_size": 4096,
    "train.epochs": 2,
    "model.hidden": [64, 32],
    "train.optimizer.lr": 0.002,
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


def follow(
    distrain: Callable[..., str],
    folder: Path,
    data: Path,
    train: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[FeatureConfig, dict[str, Any], Path]:
    """The guide's commands: the features, the run's summary, and the folder of the scores."""
    told = distrain("prep", data, "--infer", "--out", "features.yaml")
    assert told.splitlines()[-1].strip().startswith(f"distrain prep {data} --config features.yaml")
    document = yaml.safe_load((folder / "features.yaml").read_text())
    (folder / "features.yaml").write_text(yaml.safe_dump({**document, **changes}))
    distrain("prep", data, "--config", "features.yaml", "--out", "prepared")
    distrain("init", "criteo-mlp", "--data", "prepared", "--out", "job.yaml")
    settings = {**TRAIN, **(train or {})}
    options = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    distrain("train", "job.yaml", "--run-dir", "run", *options)
    distrain("predict", "run", "prepared/valid", "--out", "scores", "--keep", "label")
    features = FeatureConfig.load(folder / "features.yaml")
    return features, json.loads((folder / "run" / "summary.json").read_text()), folder / "scores"


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
    features, _, scores = follow(
        distrain,
        tmp_path,
        log,
        OF_MANY_ROWS,
        target={"column": "Quantity", "at_least": 12},
        split={"by": "time", "column": "InvoiceDate", "from": "2011-05-01"},
    )
    assert "InvoiceNo" not in features.document.columns
    assert features.document.columns["StockCode"].kind == "categorical"
    assert features.document.columns["UnitPrice"].kind == "continuous"
    found = pq.read_table(scores)
    assert found.num_rows == 19_941
    assert auc_of(scores) > 0.85
