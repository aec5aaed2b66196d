"""What a run leaves is used again: evaluate and predict."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from small_jobs import (
    ROWS_PER_FILE,
    small_document,
)
from yaml import safe_dump

from distrain.cli.main import cli
from distrain.jobs.run_paths import RunPaths
from distrain.runs.attempts import read_records


def run_distrain(*words: object) -> Result:
    """A command in this process: to load torch anew takes longer than what it does."""
    return CliRunner().invoke(cli, list(map(str, words)), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def trained(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a finished `distrain train`."""
    folder = tmp_path_factory.mktemp("trained")
    job = folder / "job.yaml"
    job.write_text(safe_dump(small_document(prepared)))
    done = run_distrain(
        "train", job, "--run-dir", folder / "run",
        "--set", "resources={backend: inline, num_ranks: 1}",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "run"


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
