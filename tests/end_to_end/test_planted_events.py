"""Labels that tell whether the row's item came lately: models of events learn it, pooling can't."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain.jobs.job_view import Record
from distrain.jobs.spec import parse_spec
from distrain.launch.inline import run_inline
from distrain.launch.job_handle import raise_for_state
from distrain.schema import ColumnSchema, Schema, Tags

NUM_ITEMS, LATELY = 30, 4
ROWS = {"train": 30_000, "valid": 8_000}
EVENT = {"is_list": True, "is_ragged": True}


def of_event(**more: str) -> dict[str, str]:
    return {"event": "seen", **more}


SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL,), cardinality=NUM_ITEMS),
        ColumnSchema(
            "seen_item",
            "int32",
            (Tags.CATEGORICAL,),
            cardinality=NUM_ITEMS,
            properties=of_event(domain="item"),
            **EVENT,
        ),
        ColumnSchema(
            "seen_time",
            "float32",
            (Tags.CONTINUOUS, Tags.TIME_DIFFERENCE),
            properties=of_event(),
            **EVENT,
        ),
    )
)


def draw(num_rows: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Rows, and their logits: the item comes once, among the newest events or before them."""
    rng = np.random.default_rng(seed)
    items, seen, times, logits = [], [], [], []
    for length in rng.choice([0, 2 * LATELY - 1, 2 * LATELY, 2 * LATELY + 2], num_rows):
        item, *others = rng.permutation(NUM_ITEMS)[: length + 1]
        newest = rng.integers(LATELY) + LATELY * rng.integers(2)
        place = max(0, length - 1 - newest)
        others[place : place + 1] = [item] if length else []
        items.append(item)
        seen.append(others)
        gaps = rng.uniform(1.9, 2.1, length)[::-1].cumsum()[::-1]  # the newest event is the nearest
        times.append(10**0.5 * np.exp(gaps / 3))
        logits.append(0.0 if not length else 2.5 if length - place <= LATELY else -2.5)
    logit = np.array(logits)
    return pa.table(
        {
            "label": (rng.random(num_rows) < 1 / (1 + np.exp(-logit))).astype(np.float32),
            "item": np.array(items, np.int32),
            "seen_item": pa.array(seen, pa.list_(pa.int32())),
            "seen_time": pa.array(times, pa.list_(pa.float32())),
        }
    ), logit


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The data, with schemas of all columns and without times; and the best possible AUC."""
    root = tmp_path_factory.mktemp("events")
    for number, (split, num_rows) in enumerate(ROWS.items()):
        rows, logit = draw(num_rows, seed=number + 1)
        (root / split).mkdir()
        pq.write_table(rows, root / split / "a.parquet", row_group_size=3_000)
    label = rows["label"].to_numpy()
    SCHEMA.save(root / "all.json")
    SCHEMA.remove(["seen_time"]).save(root / "ids.json")
    return root, auc_of(logit, label)


def auc_of(scores: np.ndarray, label: np.ndarray) -> float:
    """Equal scores count half."""
    positive, negative = scores[label == 1], np.sort(scores[label == 0])
    below = np.searchsorted(negative, positive) + np.searchsorted(negative, positive, "right")
    return float(below.sum() / 2 / (len(positive) * len(negative)))


MODELS = {
    "mlp": {"kind": "mlp", "embedding_dim": 16, "hidden": [32]},
    "hstu": {"kind": "hstu", "embedding_dim": 16, "hidden": [32]},
}


def train(root: Path, run_dir: Path, model: str) -> float:
    """Train inline; return the AUC on the validation rows."""
    schema = "ids.json" if model == "mlp" else "all.json"
    document = {
        "name": model,
        "data": {
            "train": str(root / "train"),
            "valid": str(root / "valid"),
            "schema": str(root / schema),
        },
        "model": MODELS[model],
        "train": {
            "global_batch_size": 250,
            "epochs": 8,
            "optimizer": {"kind": "adam", "lr": 0.003},
        },
        "resources": {"backend": "inline", "device": "cpu"},
    }
    records: list[Record] = []
    view = run_inline(parse_spec(document), run_dir, "job", lambda v: records.extend(v.records))
    raise_for_state(view)
    auc = [record.auc for record in records if record.split == "valid"][-1]
    assert auc is not None
    return auc


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_models_of_events_learn_what_pooling_cannot_see(
    events: tuple[Path, float], tmp_path: Path, model: str
) -> None:
    root, best = events
    share = (train(root, tmp_path / "run", model) - 0.5) / (best - 0.5)
    print(f"{model}: {share:.1%} of the way to {best:.3f}")
    assert share < 0.5 if model == "mlp" else share >= 0.9
