"""Choices of known chances: towers that learn from them show users what they like."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from distrain import fit
from distrain.loader.batch import Batch
from distrain.metrics.ranking import top_items
from distrain.models import load_model
from distrain.models.zoo.two_tower import tower_vectors
from distrain.schema import ColumnSchema, Schema, Tags

USERS, ITEMS, TASTES = 300, 150, 3
CHOICES = 200
IDS = (Tags.CATEGORICAL,)
SCHEMA = Schema(
    (
        ColumnSchema("liked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        ColumnSchema("user", "int32", (*IDS, Tags.USER_ID), USERS),
        ColumnSchema("item", "int32", (*IDS, Tags.ITEM_ID), ITEMS),
    )
)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_towers_trained_against_the_batchs_items_find_what_users_like(tmp_path: Path) -> None:
    """From choices alone: no row says what a user does not like."""
    draw = np.random.default_rng(0)
    users, items = draw.normal(0, 1, (USERS, TASTES)), draw.normal(0, 1, (ITEMS, TASTES))
    biases = draw.normal(0, 0.5, (USERS, 1)) + draw.normal(0, 0.5, (1, ITEMS))
    chances = np.exp(users @ items.T + biases)
    chances /= chances.sum(1, keepdims=True)
    chosen = np.concatenate([draw.choice(ITEMS, CHOICES, p=chance) for chance in chances])
    # The users of a batch should be many.
    order = draw.permutation(len(chosen))
    table = {
        "liked": np.ones(len(chosen), np.float32),
        "user": np.repeat(np.arange(USERS, dtype=np.int32), CHOICES)[order],
        "item": chosen.astype(np.int32)[order],
    }
    pq.write_table(pa.table(table), tmp_path / "chosen.parquet", row_group_size=20_000)
    SCHEMA.save(tmp_path / "schema.json")
    job = {
        "data": {
            "train": str(tmp_path / "chosen.parquet"),
            "schema": str(tmp_path / "schema.json"),
        },
        "model": {
            "kind": "two_tower",
            "embedding_dim": 16,
            "tower": [16],
            "task": "retrieval",
            "log_q": "batch",
        },
        "train": {
            "global_batch_size": 1024,
            "epochs": 5,
            "optimizer": {"kind": "adam", "lr": 0.01},
        },
        "resources": {"num_ranks": 1, "device": "cpu", "backend": "inline"},
    }
    fit(job, run_dir=tmp_path / "run")
    loaded = load_model(tmp_path / "run" / "model").model.eval()

    def vectors_of(name: str, count: int) -> torch.Tensor:
        ids = torch.zeros(count, 2, dtype=torch.int32)
        ids[:, ("user", "item").index(name)] = torch.arange(count)
        batch = Batch(ids, torch.zeros(count, 0), None, ("user", "item"), ())
        with torch.no_grad():
            return tower_vectors(loaded, batch)[name]

    scores = {
        "towers": (vectors_of("user", USERS) @ vectors_of("item", ITEMS).T).numpy(),
        "popularity": np.tile(np.bincount(chosen), (USERS, 1)),
        "best": chances,
    }
    # The chance that a user's next choice is among the ten that are shown.
    hit = {
        who: np.take_along_axis(chances, top_items(these, 10), axis=1).sum(1).mean()
        for who, these in scores.items()
    }
    share = (hit["towers"] - hit["popularity"]) / (hit["best"] - hit["popularity"])
    print(f"{hit}, {share:.1%} of the way from popularity to the best")
    assert share >= 0.9
