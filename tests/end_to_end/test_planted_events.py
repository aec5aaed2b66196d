"""Labels that tell whether the row's item came lately: models of events learn it, pooling can't."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from distributed import Client

from distrain.jobs.view import JobView, Record
from distrain.loader import Dataset, Loader
from distrain.models import load_model
from distrain.run_paths import new_job_id
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.scoring import PredictRequest, predict
from distrain.spec import parse_spec
from distrain.submission.handle import JobHandle, raise_for_state
from distrain.submission.inline import run_inline

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
    "bst": {"kind": "bst", "embedding_dim": 16, "heads": 1, "hidden": [32]},
    # Its vector must hold all items that came lately, since it knows no target.
    "sasrec": {"kind": "sasrec", "embedding_dim": 32, "heads": 1, "hidden": [32]},
    "din": {"kind": "din", "embedding_dim": 16, "attention": [64, 16], "hidden": [32]},
}


def train(
    root: Path,
    run_dir: Path,
    model: str,
    attempt: int = 1,
    client: Client | None = None,
    **sections: object,
) -> float:
    """Train inline, or on a cluster; the AUC on the validation rows."""
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
            # Attention wants the smaller steps.
            "optimizer": {"kind": "adam", "lr": 0.01 if model == "din" else 0.003},
        },
        "resources": {"backend": "inline", "device": "cpu"},
        **sections,
    }
    records: list[Record] = []
    spec = parse_spec(document)

    def note(view: JobView) -> None:
        records.extend(view.records)

    if client is None:
        raise_for_state(run_inline(spec, run_dir, "job", note, attempt))
    else:
        job = JobHandle(client, new_job_id(spec.name))
        job.submit(spec, run_dir)
        raise_for_state(job.watch(note))
    auc = [record.auc for record in records if record.split == "valid"][-1]
    assert auc is not None
    return auc


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(n, marks=[pytest.mark.release] if n in ("sasrec", "din", "bst") else [])
        for n in MODELS
    ],
)
def test_models_of_events_learn_what_pooling_cannot_see(
    events: tuple[Path, float], tmp_path: Path, model: str
) -> None:
    root, best = events
    share = (train(root, tmp_path / "run", model) - 0.5) / (best - 0.5)
    print(f"{model}: {share:.1%} of the way to {best:.3f}")
    assert share < 0.5 if model == "mlp" else share >= 0.9


STEPS = {"max_steps": 24, "global_batch_size": 250, "optimizer": {"kind": "adam", "lr": 0.01}}


def saved_bytes(run: Path) -> bytes:
    return (run / "model" / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    "model",
    [
        "din",
        pytest.param("hstu", marks=pytest.mark.slow),
        pytest.param("bst", marks=[pytest.mark.slow, pytest.mark.release]),
    ],
)
def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(
    events: tuple[Path, float], tmp_path: Path, model: str
) -> None:
    checkpoint = {"every_steps": 12}
    for name, steps in (("whole", 24), ("again", 24), ("parted", 12)):
        train(
            events[0],
            tmp_path / name,
            model,
            train={**STEPS, "max_steps": steps},
            checkpoint=checkpoint,
        )
    train(events[0], tmp_path / "parted", model, 2, train=STEPS, checkpoint=checkpoint)
    whole, again, parted = (saved_bytes(tmp_path / n) for n in ("whole", "again", "parted"))
    assert whole == again
    assert whole == parted


@pytest.mark.slow
def test_two_ranks_train_and_score_alike_in_any_placement(
    events: tuple[Path, float], tmp_path: Path, cluster: Client
) -> None:
    root, _ = events
    runs = {}
    for placement in ("replicated", "row_wise"):
        runs[placement] = tmp_path / placement
        train(
            root,
            runs[placement],
            "din",
            client=cluster,
            train=STEPS,
            embeddings={"placement": placement},
            resources={"backend": "dask", "num_ranks": 2, "device": "cpu"},
        )
    assert saved_bytes(runs["replicated"]) == saved_bytes(runs["row_wise"])
    out = tmp_path / "scores"
    request = PredictRequest(runs["row_wise"] / "model", (str(root / "valid"),), out)
    predict(request, cluster)
    model = load_model(runs["row_wise"] / "model").model.eval()
    dataset = Dataset(root / "valid", SCHEMA)
    with torch.no_grad():
        batches = [*Loader(dataset, batch_size=ROWS["valid"], shuffle="none", lanes=1)]
        expected = torch.cat([model(batch).sigmoid() for batch in batches]).numpy()
    scores = pq.read_table(out / "a.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-6)
