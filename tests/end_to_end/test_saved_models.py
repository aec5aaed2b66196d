"""What a run leaves is used again: evaluate and predict."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner, Result
from distributed import Client
from small_jobs import (
    ROWS_PER_FILE,
    TRAIN_FILES,
    draw_rows,
    small_document,
)
from wording import Wording
from yaml import safe_dump

from distrain.cli.main import cli
from distrain.errors import DataError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.loader.batch import Batch
from distrain.models import load_model
from distrain.predict import pieces
from distrain.predict.prediction import PredictRequest, predict
from distrain.runs.attempts import read_records
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
        "run.json", "spec.yaml", "records", "summary.json", "curves.png", "checkpoints",
        "model", "tables.zip",
    }  # fmt: skip
    records = [record.to_json() for record in read_records(RunPaths(trained))]
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


@pytest.mark.slow
def test_predict_needs_no_labels_and_keeps_other_columns(
    trained: Path, tmp_path: Path, cluster: Client
) -> None:
    rows = draw_rows(500, seed=3)
    numbered = rows.drop_columns(["label"]).append_column("user", pa.array(range(500)))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        pq.write_table(numbered, tmp_path / folder / "same-name.parquet")
    request = PredictRequest(
        trained / "model",
        (str(tmp_path / "a"), str(tmp_path / "b")),
        tmp_path / "out",
        keep=("user",),
    )
    progress: list[tuple[int, int, int]] = []
    result = predict(request, cluster, lambda *at: progress.append(at))
    assert (result.rows, result.files) == (1000, 2)
    assert [(done, total) for done, total, _ in progress] == [(1, 2), (2, 2)]
    assert progress[-1][2] == result.rows
    for name in ("00000-same-name.parquet", "00001-same-name.parquet"):
        scores = pq.read_table(tmp_path / "out" / name)
        assert scores["user"].to_pylist() == list(range(500))
        assert pc.min(scores["probability"]).as_py() > 0


@pytest.mark.slow
def test_workers_elsewhere_find_the_metrics_of_one_process_and_keep_scores(
    trained: Path, prepared: Path, tmp_path: Path, cluster: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared)  # no worker is there
    monkeypatch.setattr(pieces, "PIECE_ROWS", 2_000)
    words = ["evaluate", trained, "valid", "--max-auc-bound", 0, "--group", "C1", "--json"]
    here = run_distrain(*words)
    assert here.exit_code == 0, here.output
    words += ["--scheduler", cluster.scheduler.address, "--resume", tmp_path]
    (kept := tmp_path / "logits").touch()
    there = run_distrain(*words)
    assert there.exit_code == 0, there.output
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.slow
def test_predict_leaves_nothing_when_one_file_is_bad(
    trained: Path, tmp_path: Path, cluster: Client
) -> None:
    good, bad = draw_rows(500, seed=3), draw_rows(500, seed=4)
    broken = bad.set_column(
        bad.column_names.index("I3"), "I3", pa.array([float("nan")] * 500, pa.float32())
    )
    pq.write_table(good, tmp_path / "good.parquet")
    pq.write_table(broken, tmp_path / "bad.parquet")
    request = PredictRequest(
        trained / "model", (str(tmp_path / "*.parquet"),), tmp_path / "out", ("label",)
    )
    with pytest.raises(DataError) as caught:
        predict(request, cluster)
    assert "bad.parquet" in str(caught.value)
    assert "I3" in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.parquet", "good.parquet"]


def test_predict_asks_before_it_scores(
    trained: Path, prepared: Path, tmp_path: Path, wording: Wording
) -> None:
    (tmp_path / "full").mkdir()
    for error, model, out, keep in (
        (DataError, trained / "model", "out", ("clicks",)),
        (DataError, tmp_path / "nothing", "out", ()),
        (OutputError, trained / "model", "full", ()),
    ):
        request = PredictRequest(model, (str(prepared / "valid"),), tmp_path / out, keep)
        with pytest.raises(error) as caught:
            predict(request, None)
        wording(caught.value)
