"""A million generated rows whose best AUC is known: the models must come near it."""

import json
from pathlib import Path

import pytest
from small_jobs import run_distrain
from yaml import safe_dump

ROWS, VALID_ROWS = 1_000_000, 300_000

pytestmark = pytest.mark.slow

MODELS = {
    "dlrm": {"kind": "dlrm", "embedding_dim": 16, "bottom": [128, 64], "top": [64, 128, 256]},
    "mlp": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw and prepared rows, made by the real commands."""
    root = tmp_path_factory.mktemp("clicks")
    for words in (
        ("synth", "--rows", ROWS, "--valid-rows", VALID_ROWS, "--files", 2, "--out", root / "raw"),
        ("prep", root / "raw" / "train-*.tsv", "--valid", root / "raw" / "valid-*.tsv",
         "--out", root / "data"),
    ):  # fmt: skip
        done = run_distrain(*words)
        assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("kind", ["dlrm", "mlp"])
def test_nine_tenths_of_the_way_to_the_best_auc(clicks: Path, tmp_path: Path, kind: str) -> None:
    job = tmp_path / "job.yaml"
    data = clicks / "data"
    job.write_text(
        safe_dump(
            {
                "name": kind,
                "data": {"train": str(data / "train"), "valid": str(data / "valid")},
                "model": MODELS[kind],
                "train": {
                    "global_batch_size": 4096,
                    "optimizer": {"kind": "adagrad", "lr": 0.02},
                },
                "resources": {"num_ranks": 2, "device": "cpu"},
            }
        )
    )
    done = run_distrain("train", job, "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    best = json.loads((clicks / "raw" / "planted.json").read_text())["splits"]["valid"]["bayes_auc"]
    share = (summary["auc"] - 0.5) / (best - 0.5)
    print(f"{kind}: AUC {summary['auc']:.4f} of {best:.4f}: {share:.1%} of the way")
    assert summary["rows"] == ROWS
    assert share >= 0.9
