"""Users, items and an affinity between them, whose best AUC is known: two towers and NCF find it.

The true logit of a pair is the product of two vectors, plus how much the user likes things and
how much the item is liked. Both models can say that: two towers of one layer by their dot product,
NeuMF by its multiplied embeddings.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from small_jobs import run_distrain
from yaml import safe_dump

from distrain.metrics import BinaryMetrics
from distrain.metrics.ranking import top_items
from distrain.schema import ColumnSchema, Schema, Tags

USERS, ITEMS, TASTES = 300, 150, 3
CHOICES = 200
ROWS = {"train": 180_000, "valid": 60_000}
IDS = (Tags.CATEGORICAL,)

pytestmark = pytest.mark.slow

MODELS = {
    "two_tower": {"kind": "two_tower", "embedding_dim": 16, "tower": [16]},
    "ncf": {"kind": "ncf", "mf_dim": 8, "embedding_dim": 8, "hidden": [32, 16]},
}
SCHEMA = Schema(
    (
        ColumnSchema("liked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        ColumnSchema("user", "int32", (*IDS, Tags.USER_ID), USERS),
        ColumnSchema("item", "int32", (*IDS, Tags.ITEM_ID), ITEMS),
    )
)


def true_logits() -> NDArray[np.float64]:
    """Of every pair, `[USERS, ITEMS]`."""
    draw = np.random.default_rng(0)
    users, items = draw.normal(0, 1, (USERS, TASTES)), draw.normal(0, 1, (ITEMS, TASTES))
    biases = draw.normal(0, 0.5, (USERS, 1)) + draw.normal(0, 0.5, (1, ITEMS))
    logits: NDArray[np.float64] = users @ items.T + biases
    return logits


def bayes_auc(logits: NDArray[np.float64]) -> float:
    """Expected AUC of the true logits over evenly drawn pairs."""
    order = np.argsort(logits)
    chance = 1 / (1 + np.exp(-logits[order]))
    below = np.cumsum(1 - chance) - (1 - chance) / 2
    return float((chance * below).sum() / (chance.sum() * (1 - chance).sum()))


def write(rows: pa.Table, folder: Path) -> None:
    folder.mkdir()
    pq.write_table(rows, folder / "a.parquet", row_group_size=20_000)


@pytest.fixture(scope="module")
def likes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs drawn evenly, their labels from their logits; and items that users chose from all."""
    root = tmp_path_factory.mktemp("likes")
    logits = true_logits()
    SCHEMA.save(root / "schema.json")
    for number, (split, rows) in enumerate(ROWS.items()):
        draw = np.random.default_rng(number + 1)
        user = draw.integers(0, USERS, rows).astype(np.int32)
        item = draw.integers(0, ITEMS, rows).astype(np.int32)
        liked = draw.random(rows) < 1 / (1 + np.exp(-logits[user, item]))
        table = pa.table({"liked": liked.astype(np.float32), "user": user, "item": item})
        write(table, root / split)
    draw = np.random.default_rng(9)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    chosen = [draw.choice(ITEMS, CHOICES, p=chance) for chance in chances]
    table = pa.table(
        {
            "liked": np.ones(USERS * CHOICES, np.float32),
            "user": np.repeat(np.arange(USERS, dtype=np.int32), CHOICES),
            "item": np.concatenate(chosen).astype(np.int32),
        }
    )
    # Users stand together in the file; batches should hold many of them.
    write(table.take(pa.array(draw.permutation(len(table)))), root / "chosen")
    return root


def train(
    likes: Path,
    run_dir: Path,
    num_ranks: int,
    split: str = "train",
    epochs: int = 3,
    lr: float = 0.005,
    **model: Any,
) -> Any:
    """Train over the real command; the summary."""
    job = run_dir.parent / "job.yaml"
    document = {
        "name": "likes",
        "data": {"train": str(likes / split), "schema": str(likes / "schema.json")},
        "model": model,
        "train": {
            "global_batch_size": 1024,
            "epochs": epochs,
            "optimizer": {"kind": "adam", "lr": lr},
        },
        "resources": {"num_ranks": num_ranks, "device": "cpu"}
        | ({"backend": "inline"} if num_ranks == 1 else {}),
    }
    if split == "train":
        document["data"]["valid"] = str(likes / "valid")  # type: ignore[index]
    job.write_text(safe_dump(document))
    done = run_distrain("train", job, "--run-dir", run_dir)
    assert done.returncode == 0, done.stderr
    return json.loads((run_dir / "summary.json").read_text())


# On one rank and two they reach the same to four digits.
@pytest.mark.parametrize(
    ("kind", "num_ranks"),
    [("ncf", 1), ("two_tower", 1), pytest.param("two_tower", 2, marks=pytest.mark.release)],
)
def test_nine_tenths_of_the_way_to_the_best_auc(
    likes: Path, tmp_path: Path, kind: str, num_ranks: int
) -> None:
    summary = train(likes, tmp_path / "run", num_ranks, **MODELS[kind])
    best = bayes_auc(true_logits().ravel())
    share = (summary["auc"] - 0.5) / (best - 0.5)
    print(f"{kind} on {num_ranks}: AUC {summary['auc']:.4f} of {best:.4f}: {share:.1%} of the way")
    assert summary["rows"] == 3 * ROWS["train"]
    assert share >= 0.9


def test_the_best_auc_is_that_of_the_true_logits_on_drawn_labels(likes: Path) -> None:
    rows = pq.read_table(likes / "valid" / "a.parquet")
    logits = true_logits()
    metrics = BinaryMetrics()
    metrics.update(logits[rows["user"], rows["item"]], rows["liked"].to_numpy())
    assert metrics.compute().auc == pytest.approx(bayes_auc(logits.ravel()), abs=0.005)


@pytest.mark.parametrize("num_ranks", [1, pytest.param(2, marks=pytest.mark.release)])
def test_towers_trained_against_the_batchs_items_find_what_users_like(
    likes: Path, tmp_path: Path, num_ranks: int
) -> None:
    """From choices alone: no row says what a user does not like."""
    import torch

    from distrain.batch import Batch
    from distrain.models import load_model
    from distrain.models.zoo.two_tower import tower_vectors

    model = {**MODELS["two_tower"], "task": "retrieval", "log_q": "batch"}
    train(likes, tmp_path / "run", num_ranks, split="chosen", epochs=5, lr=0.01, **model)
    loaded = load_model(tmp_path / "run" / "model").model.eval()

    def pairs(user: torch.Tensor, item: torch.Tensor) -> Batch:
        ids = torch.stack([user, item], 1).int()
        return Batch(ids, torch.zeros(len(ids), 0), None, ("user", "item"), ())

    everyone, everything = torch.arange(USERS), torch.arange(ITEMS)
    with torch.no_grad():
        users = tower_vectors(loaded, pairs(everyone, torch.zeros_like(everyone)))["user"]
        items = tower_vectors(loaded, pairs(torch.zeros_like(everything), everything))["item"]
    chances = np.exp(true_logits())
    chances /= chances.sum(1, keepdims=True)
    counts = np.bincount(pq.read_table(likes / "chosen" / "a.parquet")["item"])
    scores = {
        "towers": (users @ items.T).numpy(),
        "popularity": np.tile(counts, (USERS, 1)),
        "best": chances,
    }
    # The chance that a user's next choice is among the ten that are shown.
    hit = {
        who: np.take_along_axis(chances, top_items(these, 10), axis=1).sum(1).mean()
        for who, these in scores.items()
    }
    share = (hit["towers"] - hit["popularity"]) / (hit["best"] - hit["popularity"])
    print(f"on {num_ranks}: {hit}, {share:.1%} of the way from popularity to the best")
    assert share >= 0.9
