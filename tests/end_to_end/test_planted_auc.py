"""A million generated rows whose best AUC is known: the models must come near it."""

import json
from pathlib import Path
from typing import Any

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


# SGD's steps are as long for rare ids as for common ones, so in one epoch it needs more of them.
TRAINING = {
    "adagrad": {"global_batch_size": 4096, "optimizer": {"kind": "adagrad", "lr": 0.02}},
    "adam": {"global_batch_size": 4096, "optimizer": {"kind": "adam", "lr": 0.002}},
    "rowwise_adagrad": {
        "global_batch_size": 4096,
        "optimizer": {"kind": "rowwise_adagrad", "lr": 0.02},
    },
    "sgd": {
        "global_batch_size": 512,
        "optimizer": {"kind": "sgd", "lr": 3.0},
        "schedule": {"warmup_steps": 20, "decay": "linear"},
    },
}


def share_of_the_best(clicks: Path, run_dir: Path, model: str, **sections: Any) -> float:
    """Train over the real command; how far the AUC got from chance to the best possible."""
    job = run_dir.parent / "job.yaml"
    data = clicks / "data"
    document = {
        "name": model,
        "data": {"train": str(data / "train"), "valid": str(data / "valid")},
        "model": MODELS[model],
        "resources": {"num_ranks": 2, "device": "cpu"},
        **sections,
    }
    job.write_text(safe_dump(document))
    done = run_distrain("train", job, "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    best = json.loads((clicks / "raw" / "planted.json").read_text())["splits"]["valid"]["bayes_auc"]
    share = (summary["auc"] - 0.5) / (best - 0.5)
    print(f"{sections}: AUC {summary['auc']:.4f} of {best:.4f}: {share:.1%} of the way")
    assert summary["rows"] == ROWS
    return float(share)


@pytest.mark.parametrize("model", ["dlrm", "mlp"])
def test_nine_tenths_of_the_way_to_the_best_auc(clicks: Path, tmp_path: Path, model: str) -> None:
    share = share_of_the_best(clicks, tmp_path / "run", model, train=TRAINING["adagrad"])
    assert share >= 0.9


@pytest.mark.parametrize("placement", ["replicated", "row_wise", "host_cached"])
@pytest.mark.parametrize("kind", sorted(TRAINING))
def test_every_optimizer_gets_there_with_every_placement(
    clicks: Path, tmp_path: Path, kind: str, placement: str
) -> None:
    share = share_of_the_best(
        clicks,
        tmp_path / "run",
        "mlp",
        train=TRAINING[kind],
        embeddings={"placement": placement},
    )
    assert share >= 0.9


@pytest.mark.parametrize("form", ["precision", "storage"])
def test_bf16_gets_there_too(clicks: Path, tmp_path: Path, form: str) -> None:
    more = {"precision": "bf16"} if form == "precision" else {}
    share = share_of_the_best(
        clicks,
        tmp_path / "run",
        "mlp",
        train=TRAINING["adagrad"] | more,
        embeddings={"storage": "bf16" if form == "storage" else "fp32"},
    )
    assert share >= 0.9
