"""Whole trainings of retrieval: validations by recall, and bits after an interruption."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from trained import trained

import distrain
from distrain.errors import SpecError
from distrain.jobs.events import EvaluationDone
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.loader import Dataset, Loader
from distrain.models import load_model
from distrain.models.zoo.two_tower import tower_vectors
from distrain.schema import ColumnSchema, Schema, Tags

ITEMS = 30
SEEN = {"domain": "item", "event": "seen"}
SCHEMA = Schema(
    (
        ColumnSchema("bought", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", (Tags.CATEGORICAL, Tags.USER_ID), 12),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL, Tags.ITEM_ID), ITEMS),
        ColumnSchema("seen", "int32", (Tags.CATEGORICAL,), ITEMS, is_list=True, properties=SEEN),
    )
)
TOWERS = {"kind": "two_tower", "task": "retrieval", "tower": [8], "embedding_dim": 8}
MODELS = {
    "stream": {**TOWERS, "log_q": "stream"},
    "drawn": {**TOWERS, "negatives": "popularity", "num_negatives": 3},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users who like every third item, from another one on."""
    folder = tmp_path_factory.mktemp("retrieval")
    draw = np.random.default_rng(1)
    for name, rows in (("train", 600), ("valid", 120)):
        users = draw.integers(3, 12, rows).astype(np.int32)
        items = (3 + users % 3 + 3 * draw.integers(0, 9, rows)).astype(np.int32)
        seen = [
            (3 + user % 3 + 3 * draw.integers(0, 9, size)).astype(np.int32)
            for user, size in zip(users, draw.integers(0, 5, rows), strict=True)
        ]
        label = (draw.random(rows) < 0.9).astype(np.float32)
        lists = pa.array(seen, pa.list_(pa.int32()))
        (folder / name).mkdir()
        table = pa.table({"bought": label, "user": users, "item": items, "seen": lists})
        pq.write_table(table, folder / name / "a.parquet", row_group_size=100)
    SCHEMA.save(folder / "schema.json")
    return folder


def train(folder, root, model, attempt=1, **sections):
    document = {
        "data": {"train": str(folder / "train"), "valid": str(folder / "valid")},
        "model": model,
        "resources": {"backend": "inline", "device": "cpu"},
        **sections,
    }
    document["data"]["schema"] = str(folder / "schema.json")
    torch.manual_seed(0)  # a rank draws dropout from the job's seed
    trainer, events = trained(parse_spec(document), root, attempt)
    return trainer, [event for event in events if isinstance(event, EvaluationDone)]


def steps(most, **options):
    return {
        "train": {"global_batch_size": 64, "max_steps": most, "epochs": 5, **options},
        "checkpoint": {"every_steps": 3, "every_s": None, "keep": 9},
    }


@pytest.mark.parametrize("name", ["stream", pytest.param("drawn", marks=pytest.mark.slow)])
def test_what_was_interrupted_goes_on_with_the_bits_of_a_quiet_run(folder, tmp_path, name):
    quiet, _ = train(folder, tmp_path / "quiet", MODELS[name], **steps(14))
    train(folder, tmp_path / "run", MODELS[name], **steps(7))
    resumed, _ = train(folder, tmp_path / "run", MODELS[name], attempt=2, **steps(14))
    mine, other = quiet.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    if name == "stream":
        assert int(mine["dense.task.seen"].sum()) == 14 * 64 - (64 - 600 % 64)


def test_validations_have_the_recall_among_their_items(folder, tmp_path):
    sections = steps(30, optimizer={"kind": "adam", "lr": 0.02})
    sections["checkpoint"]["keep_best"] = "recall_at_10"
    sections["evaluate"] = {"every_steps": 10}
    trainer, validations = train(folder, tmp_path, MODELS["stream"], **sections)
    recalls = [event.own["recall_at_10"] for event in validations]
    assert recalls[-1] > 0.8 > recalls[0]
    assert trainer.validations.best_value == max(recalls)
    model = load_model(RunPaths(tmp_path).model).model
    dataset = Dataset(folder / "valid", SCHEMA)
    with Loader(dataset, batch_size=120, lanes=1, shuffle="none") as loader, torch.no_grad():
        (batch,) = loader
        vectors = tower_vectors(model, batch)
    items = batch["item"].tolist()
    known = {item: row for row, item in enumerate(items)}
    hits = []
    for row in np.flatnonzero(batch.label.numpy() == 1):
        user = vectors["user"][row]
        best = sorted(known, key=lambda i: (-float(user @ vectors["item"][known[i]]), i))[:10]
        hits.append(items[row] in best)
    assert np.mean(hits) == pytest.approx(max(recalls))


def test_a_run_of_retrieval_is_not_compared_with_a_constant(folder, tmp_path, caplog):
    document = {
        "data": {name: str(folder / name) for name in ("train", "valid")},
        "model": TOWERS,
        "resources": {"backend": "inline", "device": "cpu"},
        **steps(1),
    }
    document["data"]["schema"] = str(folder / "schema.json")
    with caplog.at_level("INFO", "distrain"):
        run = distrain.fit(document, run_dir=tmp_path / "run", curves=False)
    assert run.summary.normalised_entropy > 1
    assert any("recall" in text for text in caplog.messages)
    assert not any("constant" in text for text in caplog.messages)


def test_slices_of_a_step_are_refused(folder, tmp_path, wording):
    wording.refused(SpecError, lambda: train(folder, tmp_path, TOWERS, **steps(1, micro_batches=2)))
