"""What a run leaves is used again: evaluate and predict."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner, Result
from distributed import Client
from small_jobs import (
    ROWS_PER_FILE,
    TRAIN_FILES,
    small_document,
)
from yaml import safe_dump

from distrain.cli.main import cli
from distrain.loader.batch import Batch
from distrain.models import load_model
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS
from distrain.workers.local import local_cluster


def run_distrain(*words: object) -> Result:
    """A command in this process: to load torch anew takes longer than what it does."""
    return CliRunner().invoke(cli, list(map(str, words)), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    """A worker process; nothing here needs two."""
    with local_cluster(1, 1, "cpu", ":0") as client:
        yield client


@pytest.fixture(scope="module")
def trained(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a finished `distrain train`."""
    folder = tmp_path_factory.mktemp("trained")
    job = folder / "job.yaml"
    job.write_text(safe_dump(small_document(prepared)))
    done = run_distrain(
        "train", job, "--run-dir", folder / "run",
        "--set", "resources={backend: inline, num_ranks: 1}",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "run"


def naive_probabilities(model_dir: Path, rows: pa.Table) -> np.ndarray:
    saved = load_model(model_dir)
    saved.model.eval()
    columns = [
        np.stack([rows[c].to_numpy() for c in names], 1) for names in (CATEGORICAL, CONTINUOUS)
    ]
    batch = Batch(
        torch.from_numpy(columns[0]), torch.from_numpy(columns[1]), None, CATEGORICAL, CONTINUOUS
    )
    with torch.no_grad():
        return torch.sigmoid(saved.model(batch)).numpy()


def test_a_run_directory_holds_all_that_it_should(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names == {
        "run.json", "spec.yaml", "metrics.jsonl", "summary.json", "curves.png", "checkpoints",
        "model", "tables.zip",
    }  # fmt: skip
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["split"] == "train"] == [5, 10, 15, 20]
    assert sum(r["rows"] for r in records if r["split"] == "train") == 20 * 200
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["state"] == "succeeded"
    assert summary["rows"] == 20 * 200
    assert summary["scored_on"] == "valid"
    assert summary["scored_rows"] == ROWS_PER_FILE
    assert summary["auc"] == records[-1]["auc"]
    assert sum(summary["seconds"][0].values()) == pytest.approx(summary["wall_s"])
    model_files = {path.name for path in (trained / "model").iterdir()}
    assert model_files == {"weights.safetensors", "model.json", "schema.pbtxt"}


def test_evaluate_finds_the_metrics_of_the_last_validation(trained: Path, prepared: Path) -> None:
    done = run_distrain("evaluate", trained, prepared / "valid", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    summary = json.loads((trained / "summary.json").read_text())
    assert report["rows"] == ROWS_PER_FILE
    assert report["log_loss"] == pytest.approx(summary["log_loss"], rel=1e-6)
    assert report["auc"] == pytest.approx(summary["auc"], abs=1e-6)


@pytest.mark.slow
def test_predict_scores_every_row_in_its_place(
    trained: Path, prepared: Path, tmp_path: Path, cluster: Client
) -> None:
    out = tmp_path / "scores"
    done = run_distrain(
        "predict", trained, prepared / "train", "--out", out, "--keep", "label", "--keep", "I1",
        "--batch-size", 999, "--scheduler", cluster.scheduler.address,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"{TRAIN_FILES * ROWS_PER_FILE:,} rows in {TRAIN_FILES} files" in done.stdout
    assert sorted(p.name for p in out.iterdir()) == [
        f"part-{i}.parquet" for i in range(TRAIN_FILES)
    ]
    for path in out.iterdir():
        source, scores = pq.read_table(prepared / "train" / path.name), pq.read_table(path)
        assert scores.column_names == ["label", "I1", "logit", "probability"]
        assert scores["I1"].equals(source["I1"])
        assert scores["label"].equals(source["label"])
        expected = naive_probabilities(trained / "model", source)
        np.testing.assert_allclose(scores["probability"].to_numpy(), expected, atol=1e-6)
