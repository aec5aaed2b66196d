"""Clicks that buckets and pairs decide: a model reaches them with their operators alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from threads_as_cluster import client as client

from distrain import fit
from distrain.prep import FeatureConfig, PrepRequest, prepare

pytestmark = pytest.mark.slow

ROWS, VALID_ROWS = 24_000, 6_000
PLAIN = {
    "x": {"kind": "continuous", "log": True, "normalize": True},
    "a": {"kind": "categorical"},
    "b": {"kind": "categorical"},
}
MADE: dict[str, dict[str, Any]] = {
    "x_bucket": {"from": "x", "kind": "categorical", "buckets": {"quantiles": 100}},
    "pair_mean": {
        "cross": ["a", "b"],
        "kind": "continuous",
        "target_mean": {},
        "normalize": True,
    },
}
MLP: dict[str, Any] = {"kind": "mlp", "hidden": [32], "embedding_dim": 8}


def auc(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    ranks = np.argsort(np.argsort(scores)) + 1
    ones = labels.sum()
    area = ranks[labels == 1].sum() - ones * (ones + 1) / 2
    return float(area / (ones * (len(labels) - ones)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A file of rows, and the AUC of the clicks' true odds on the last of them."""
    rng = np.random.default_rng(8)
    x = rng.lognormal(3, 2, ROWS)
    a, b = rng.integers(0, 25, (2, ROWS))
    odds = 1.5 * np.sign(np.sin(6 * np.log(x)))
    odds += 1.5 * rng.choice([-1, 1], (25, 25))[a, b]
    clicks = (rng.random(ROWS) < 1 / (1 + np.exp(-odds))).astype(int)
    file = tmp_path_factory.mktemp("world") / "t.parquet"
    pq.write_table(pa.table({"x": x, "a": a, "b": b, "clicked": clicks}), file)
    return file, auc(odds[-VALID_ROWS:], clicks[-VALID_ROWS:])


def reached(
    file: Path,
    columns: dict[str, Any],
    place: Path,
    client: Client,
    *,
    epochs: int = 3,
    **model: Any,
) -> float:
    split = {"by": "rows", "last": VALID_ROWS}
    features = FeatureConfig.parse({"target": "clicked", "split": split, "columns": columns})
    prepare(PrepRequest((str(file),), place / "d", features=features), client)
    job = {
        "data": {"train": str(place / "d/train"), "valid": str(place / "d/valid")},
        "model": model,
        "train": {
            "global_batch_size": 256,
            "epochs": epochs,
            "optimizer": {"kind": "adam", "lr": 0.003},
        },
        "evaluate": {"at_end": True},
        "resources": {"backend": "inline", "device": "cpu"},
    }
    found = fit(job, run_dir=place / "r").summary.auc
    assert found is not None
    return float(found)


def test_each_operator_is_needed_for_what_can_be_reached(
    world: tuple[Path, float], client: Client, tmp_path: Path
) -> None:
    file, best = world
    shares = {}
    for left_out in (None, *MADE):
        made = {name: column for name, column in MADE.items() if name != left_out}
        found = reached(file, PLAIN | made, tmp_path / str(left_out), client, **MLP)
        shares[left_out] = (found - 0.5) / (best - 0.5)
    assert shares.pop(None) >= 0.9
    assert all(share < 0.9 for share in shares.values())
