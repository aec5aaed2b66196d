"""docs/any-table.md's guide, from `--infer` to scores, on a table of the test and on a real one."""

import datetime
import json
import random
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from distrain.etl import FeatureConfig

NUM_ROWS = 6000
START = datetime.datetime(2024, 1, 1)
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


def made_rows() -> list[dict[str, Any]]:
    """Rows whose answer depends on a text, a time, a decimal, a truth value and a list."""
    source = random.Random(7)
    rows = []
    for number in range(NUM_ROWS):
        at = START + datetime.timedelta(minutes=13 * number)
        row: dict[str, Any] = {
            "visit": f"v{number:07d}",
            "shop": source.choice(["north", "south", None, *"abcdefgh"]),
            "at": at,
            "price": Decimal(source.randint(100, 99_999)) / 100,
            "member": source.random() < 0.3,
            "seen": source.choices(["cup", "tea", "pot", "jam", "bun"], k=source.randint(0, 4)),
        }
        score = 2.0 * (row["shop"] == "north") - 2.0 * (row["shop"] is None)
        score += 1.5 * row["member"] + 2.0 * ("tea" in row["seen"]) - 1.5 * ("jam" in row["seen"])
        score += (at.hour >= 18) - float(row["price"]) / 400
        row["bought"] = int(source.random() < 1 / (1 + np.exp(-score)))
        rows.append(row)
    return rows


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


@pytest.mark.release
@pytest.mark.slow
def test_from_a_table_to_scores(distrain: Callable[..., str], tmp_path: Path) -> None:
    rows = made_rows()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "visits.parquet", row_group_size=1000)
    features, summary, scores = follow(distrain, tmp_path, Path("visits.parquet"))
    kinds = {name: column.kind for name, column in features.document.columns.items()}
    assert kinds == {
        "shop": "categorical",
        "at_hour": "categorical",
        "at_weekday": "categorical",
        "price": "continuous",
        "member": "categorical",
        "seen": "categorical",
    }
    assert features.document.target.column == "bought"
    found = pq.read_table(scores)
    assert found["label"].to_pylist() == [row["bought"] for row in rows[-600:]]
    assert auc_of(scores) > 0.75
    assert summary["state"] == "succeeded"


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
