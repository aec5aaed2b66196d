"""Generated rows whose best AUC is known: models must come near it, by the real commands.

`tests/models/zoo` holds the formulas of all models, and the tests of the embeddings that optimizers
and placements change no bit.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_jobs import run_distrain
from yaml import safe_dump

from distrain.loader import Dataset, Loader
from distrain.models import load_model
from distrain.train.loop.evaluation import evaluate

ROWS, VALID_ROWS = 200_000, 100_000
# Easier than the defaults, for so few rows: fewer ids, and labels that tell more.
PLANTED = ("--scale", 0.001, "--click-rate", 0.25)

pytestmark = pytest.mark.slow

ADAGRAD = {"global_batch_size": 1024, "optimizer": {"kind": "adagrad", "lr": 0.03}}
ADAM = {"global_batch_size": 1024, "optimizer": {"kind": "adam", "lr": 0.003}}
MLP = {"kind": "mlp", "embedding_dim": 8, "hidden": [64, 64]}
CROSSED = {
    "kind": "dlrm_cross",
    "embedding_dim": 8,
    "bottom": [32],
    "top": [32],
    "crosses": [{"columns": ["C1", "C2"], "num_bins": 1000}],
}
# The model, its training, its tables, and the number of ranks.
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]] = {
    "mlp, row-wise on two ranks": (MLP, ADAGRAD, {"placement": "row_wise"}, 2),
    "mlp, cached in bf16": (MLP, ADAM, {"placement": "host_cached", "storage": "bf16"}, 1),
    "dlrm with crosses": (CROSSED, ADAGRAD, {}, 1),
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw rows in `raw` and prepared ones in `data`, made by the real commands."""
    root = tmp_path_factory.mktemp("clicks")
    for words in (
        ("synth", "--rows", ROWS, "--valid-rows", VALID_ROWS, "--files", 2, "--out", root / "raw",
         *PLANTED),
        ("prep", root / "raw" / "train-*.tsv", "--valid", root / "raw" / "valid-*.tsv",
         "--out", root / "data"),
    ):  # fmt: skip
        done = run_distrain(*words)
        assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.release] * ("crosses" in name)) for name in JOBS],
)
def test_a_model_goes_nine_tenths_of_the_way_to_the_best_auc_and_is_saved_as_it_scores(
    clicks: Path, tmp_path: Path, name: str
) -> None:
    model, train, embeddings, ranks = JOBS[name]
    data, run = clicks / "data", tmp_path / "run"
    resources: dict[str, Any] = {"num_ranks": ranks, "device": "cpu"}
    document = {
        "data": {"train": str(data / "train"), "valid": str(data / "valid")},
        "model": model,
        "train": train,
        "embeddings": embeddings,
        # A cluster of its own takes three times the processor time.
        "resources": resources | ({"backend": "inline"} if ranks == 1 else {}),
    }
    (tmp_path / "job.yaml").write_text(safe_dump(document))
    done = run_distrain("train", tmp_path / "job.yaml", "--run-dir", run)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    planted = json.loads((clicks / "raw" / "planted.json").read_text())["splits"]
    best = planted["valid"]["bayes_auc"]
    share = (summary["auc"] - 0.5) / (best - 0.5)
    print(f"{name}: AUC {summary['auc']:.4f} of {best:.4f}: {share:.1%} of the way")
    assert summary["rows"] == planted["train"]["rows"]
    assert share >= 0.9
    # What was saved scores as what was trained did; other batches may round otherwise.
    saved = load_model(run / "model")
    valid = Dataset(str(data / "valid"), saved.schema)
    loader = Loader(valid, batch_size=4096, lanes=1, shuffle="none")
    main = evaluate(saved.model, loader, torch.device("cpu")).main
    assert main is not None
    again = main.compute()
    assert again.rows == VALID_ROWS
    assert again.auc == pytest.approx(summary["auc"], abs=1e-6)
