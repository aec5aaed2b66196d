"""The real rows, used where they lie, from gzipped text to a model, by the real commands."""

import json
from pathlib import Path

import pytest
from small_jobs import run_distrain
from yaml import safe_dump

ROWS, VALID_ROWS, VALID_CLICKS = 7_500, 2_000, 59


@pytest.mark.slow
def test_real_clicks_are_prepared_trained_and_scored(shared_data: Path, tmp_path: Path) -> None:
    raw = next((shared_data / "criteo").glob("*.tsv.gz"))
    done = run_distrain(
        "prep", raw, "--valid-rows", VALID_ROWS, "--freq-threshold", 3, "--out", tmp_path / "data"
    )
    assert done.returncode == 0, done.stderr
    job = tmp_path / "job.yaml"
    job.write_text(
        safe_dump(
            {
                "name": "criteo",
                "data": {
                    "train": str(tmp_path / "data" / "train"),
                    "valid": str(tmp_path / "data" / "valid"),
                },
                "model": {"kind": "dlrm", "embedding_dim": 8, "bottom": [32, 8], "top": [32, 16]},
                "train": {
                    "global_batch_size": 256,
                    "epochs": 2,
                    "optimizer": {"kind": "adagrad", "lr": 0.02},
                },
                "resources": {"num_ranks": 2, "device": "cpu"},
            }
        )
    )
    done = run_distrain("train", job, "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rows"] == 2 * (ROWS - VALID_ROWS)
    assert summary["scored_rows"] == VALID_ROWS
    # 59 clicks: a standard error of 0.04. This tells a working pipeline from a broken one.
    assert summary["auc"] >= 0.62
    print(f"AUC on the last {VALID_ROWS:,} real rows: {summary['auc']:.4f}")

    done = run_distrain("evaluate", tmp_path / "run", tmp_path / "data" / "valid", "--json")
    report = json.loads(done.stdout)
    assert report["positives"] == VALID_CLICKS
    # So few clicks leave doubt about the average precision in bins: `evaluate` orders the scores.
    assert abs(report["auc"] - summary["auc"]) <= summary["auc_bound"]
    assert report["auc_bound"] == 0.0
