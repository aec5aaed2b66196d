"""Generated rows whose best AUC is known, up to a million: the models must come near it."""

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

ROWS, VALID_ROWS = 1_000_000, 300_000
# Small enough for many trainings, and easier: fewer ids, and labels that tell more.
SMALL_ROWS, SMALL_VALID_ROWS = 200_000, 100_000

pytestmark = pytest.mark.slow

MODELS = {
    "dlrm": {"kind": "dlrm", "embedding_dim": 16, "bottom": [128, 64], "top": [64, 128, 256]},
    "mlp": {"kind": "mlp", "embedding_dim": 8, "hidden": [64, 64]},
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw and prepared rows, made by the real commands."""
    root = tmp_path_factory.mktemp("clicks")
    make_clicks(root, ROWS, VALID_ROWS)
    return root


@pytest.fixture(scope="module")
def few_clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `clicks`, of which there are more among these."""
    root = tmp_path_factory.mktemp("few_clicks")
    make_clicks(root, SMALL_ROWS, SMALL_VALID_ROWS, "--scale", 0.001, "--click-rate", 0.25)
    return root


def make_clicks(root: Path, rows: int, valid_rows: int, *options: object) -> None:
    """Raw rows in `raw`, prepared ones in `data`."""
    for words in (
        ("synth", "--rows", rows, "--valid-rows", valid_rows, "--files", 2, "--out", root / "raw",
         *options),
        ("prep", root / "raw" / "train-*.tsv", "--valid", root / "raw" / "valid-*.tsv",
         "--out", root / "data"),
    ):  # fmt: skip
        done = run_distrain(*words)
        assert done.returncode == 0, done.stderr


# SGD's steps are as long for rare ids as for common ones, so in one epoch it needs more of them.
TRAINING = {
    "adagrad": {"global_batch_size": 1024, "optimizer": {"kind": "adagrad", "lr": 0.03}},
    "adam": {"global_batch_size": 1024, "optimizer": {"kind": "adam", "lr": 0.003}},
    "rowwise_adagrad": {
        "global_batch_size": 1024,
        "optimizer": {"kind": "rowwise_adagrad", "lr": 0.03},
    },
    "sgd": {
        "global_batch_size": 256,
        "optimizer": {"kind": "sgd", "lr": 3.0},
        "schedule": {"warmup_steps": 20, "decay": "linear"},
    },
}


def share_of_the_best(
    clicks: Path, run_dir: Path, model: str, ranks: int = 1, **sections: Any
) -> float:
    """Train over the real command; how far the AUC got from chance to the best possible.

    Two ranks on a cluster of their own take three times the processor time of one inline.
    """
    job = run_dir.parent / "job.yaml"
    data = clicks / "data"
    document = {
        "name": model,
        "data": {"train": str(data / "train"), "valid": str(data / "valid")},
        "model": MODELS[model],
        "resources": {"num_ranks": ranks, "device": "cpu"}
        | ({"backend": "inline"} if ranks == 1 else {}),
        **sections,
    }
    job.write_text(safe_dump(document))
    done = run_distrain("train", job, "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    planted = json.loads((clicks / "raw" / "planted.json").read_text())["splits"]
    best = planted["valid"]["bayes_auc"]
    share = (summary["auc"] - 0.5) / (best - 0.5)
    print(f"{sections}: AUC {summary['auc']:.4f} of {best:.4f}: {share:.1%} of the way")
    assert summary["rows"] == planted["train"]["rows"]
    return float(share)


def test_nine_tenths_of_the_way_to_the_best_auc(clicks: Path, tmp_path: Path) -> None:
    train = {"global_batch_size": 4096, "optimizer": {"kind": "adagrad", "lr": 0.02}}
    assert share_of_the_best(clicks, tmp_path / "run", "dlrm", 2, train=train) >= 0.9


# Each optimizer and each placement once: tests of the embeddings hold their bits equal.
@pytest.mark.parametrize(
    ("kind", "placement", "ranks"),
    [
        ("adagrad", "row_wise", 2),
        pytest.param("adam", "host_cached", 1, marks=pytest.mark.release),
        pytest.param("rowwise_adagrad", "row_wise", 2, marks=pytest.mark.release),
        pytest.param("sgd", "replicated", 1, marks=pytest.mark.release),
    ],
)
def test_every_optimizer_and_every_placement_gets_there(
    few_clicks: Path, tmp_path: Path, kind: str, placement: str, ranks: int
) -> None:
    share = share_of_the_best(
        few_clicks,
        tmp_path / "run",
        "mlp",
        ranks,
        train=TRAINING[kind],
        embeddings={"placement": placement},
    )
    assert share >= 0.9


@pytest.mark.parametrize("form", [pytest.param("precision", marks=pytest.mark.release), "storage"])
def test_bf16_gets_there_too(few_clicks: Path, tmp_path: Path, form: str) -> None:
    more = {"precision": "bf16"} if form == "precision" else {}
    share = share_of_the_best(
        few_clicks,
        tmp_path / "run",
        "mlp",
        train=TRAINING["adagrad"] | more,
        embeddings={"storage": "bf16" if form == "storage" else "fp32"},
    )
    assert share >= 0.9


CROSSES = [{"columns": ["C1", "C2"], "num_bins": 1000}]
ZOO = {
    "dcn": {"embedding_dim": 8, "hidden": [64]},
    "dcn_v2": {"embedding_dim": 8, "hidden": [64], "low_rank": 16},
    "deepfm": {"embedding_dim": 8, "hidden": [64]},
    "dlrm_cross": {"embedding_dim": 8, "bottom": [32], "top": [32], "crosses": CROSSES},
    "tabular": {"embedding_dim": 8, "hidden": [64, 32]},
    "wide_deep": {"embedding_dim": 8, "hidden": [64], "crosses": CROSSES},
}
MODELS |= {kind: {"kind": kind, **options} for kind, options in ZOO.items()}


# One of them in each run of CI; `tests/models/zoo` holds the formulas of all.
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind == "dlrm_cross" else pytest.mark.release)
        for kind in sorted(ZOO)
    ],
)
def test_every_model_of_the_zoo_gets_there(few_clicks: Path, tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    share = share_of_the_best(few_clicks, run, kind, train=TRAINING["adagrad"])
    assert share >= 0.9
    # What was saved scores as what was trained did, to the last bit of the metrics' bins.
    saved = load_model(run / "model")
    valid = Dataset(str(few_clicks / "data" / "valid"), saved.schema)
    loader = Loader(valid, batch_size=4096, lanes=1, shuffle="none")
    main = evaluate(saved.model, loader, torch.device("cpu")).main
    assert main is not None
    again = main.compute()
    summary = json.loads((run / "summary.json").read_text())
    assert (again.auc, again.rows) == (summary["auc"], SMALL_VALID_ROWS)
