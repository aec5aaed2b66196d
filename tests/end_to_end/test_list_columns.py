"""A list column carries the signal: jobs learn it, saved models score it, mistakes are told."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from distributed import Client

from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import Record
from distrain.launch.inline import run_inline
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.loader.batch import Batch, Ragged
from distrain.models import load_model
from distrain.predict.prediction import PredictRequest, predict
from distrain.schema import ColumnSchema, Schema, Tags

NUM_TAGS, ROWS = 40, {"train": 6_000, "valid": 3_000}
IDS = (Tags.CATEGORICAL,)
TAGS = ColumnSchema("tags", "int32", IDS, cardinality=NUM_TAGS, is_list=True, is_ragged=True)
OTHERS = (
    ColumnSchema("label", "float32", (Tags.TARGET,)),
    ColumnSchema("user", "int32", IDS, cardinality=50),
    ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
)
WITH_TAGS, WITHOUT = Schema((*OTHERS[:2], TAGS, OTHERS[2])), Schema(OTHERS)


def draw(num_rows: int, seed: int) -> pa.Table:
    """Rows whose labels depend on the mean of what their tags are worth, and a little on price."""
    worth = np.random.default_rng(0).normal(0, 4, NUM_TAGS)
    rng = np.random.default_rng(seed)
    tags = [rng.integers(0, NUM_TAGS, length) for length in rng.integers(0, 6, num_rows)]
    price = rng.normal(0, 1, num_rows)
    logit = [worth[ids].mean() if len(ids) else 0.0 for ids in tags] + 0.2 * price
    return pa.table(
        {
            "label": (rng.random(num_rows) < 1 / (1 + np.exp(-logit))).astype(np.float32),
            "user": rng.integers(0, 50, num_rows).astype(np.int32),
            "price": price.astype(np.float32),
            "tags": pa.array(tags, pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data and its schema with and without the list column."""
    root = tmp_path_factory.mktemp("clicks")
    for number, (split, rows) in enumerate(ROWS.items()):
        (root / split).mkdir()
        pq.write_table(draw(rows, seed=number + 1), root / split / "a.parquet", row_group_size=999)
    WITH_TAGS.save(root / "with.json")
    WITHOUT.save(root / "without.json")
    return root


def spec_for(clicks: Path, *overrides: str) -> JobSpec:
    document = {
        "name": "lists",
        "data": {
            "train": str(clicks / "train"),
            "valid": str(clicks / "valid"),
            "schema": str(clicks / "with.json"),
        },
        "model": {"kind": "mlp", "embedding_dim": 4, "hidden": [16]},
        "train": {
            "global_batch_size": 200,
            "epochs": 2,
            "optimizer": {"kind": "adagrad", "lr": 0.1, "eps": 1.0e-6},
        },
        "resources": {"backend": "inline", "device": "cpu"},
    }
    return parse_spec(document, overrides)


def train(spec: JobSpec, run_dir: Path, client: Client | None = None) -> float:
    """The AUC on the validation rows."""
    records: list[Record] = []
    if client is None:
        raise_for_state(run_inline(spec, run_dir, "job", lambda v: records.extend(v.records)))
    else:
        job = JobHandle(client, new_job_id(spec.name))
        job.submit(spec, run_dir)
        raise_for_state(job.watch(lambda view: records.extend(view.records)))
    (auc,) = [record.auc for record in records if record.split == "valid"]
    assert auc is not None
    return auc


@pytest.fixture(scope="module")
def inline(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An inline job's run directory and AUC."""
    run = tmp_path_factory.mktemp("inline") / "run"
    return run, train(spec_for(clicks), run)


def test_the_signal_is_in_the_lists(
    clicks: Path, tmp_path: Path, inline: tuple[Path, float]
) -> None:
    without = train(spec_for(clicks, f"data.schema={clicks / 'without.json'}"), tmp_path / "run")
    assert without < 0.58
    assert inline[1] > 0.8


def test_predict_gives_the_models_scores(
    clicks: Path, tmp_path: Path, inline: tuple[Path, float]
) -> None:
    rows = pq.read_table(clicks / "valid" / "a.parquet")
    model = load_model(inline[0] / "model").model.eval()
    tags = rows["tags"].combine_chunks()
    lists = Ragged(torch.tensor(tags.values.to_numpy()), torch.tensor(tags.offsets.to_numpy()))
    flat = [torch.tensor(rows[name].to_numpy())[:, None] for name in ("user", "price")]
    batch = Batch(flat[0], flat[1], None, ("user",), ("price",), lists={"tags": lists})
    with torch.no_grad():
        expected = torch.sigmoid(model(batch)).numpy()
    out = tmp_path / "scores"
    request = PredictRequest(
        inline[0] / "model", (str(clicks / "valid"),), out, keep=("tags",), batch_rows=700
    )
    with Client(processes=False, dashboard_address=":0") as here:
        predict(request, here)
    scores = pq.read_table(out / "a.parquet")
    assert scores["tags"].equals(rows["tags"])
    np.testing.assert_allclose(scores["probability"].to_numpy(), expected, atol=1e-6)
    label = rows["label"].to_numpy()
    positive, negative = expected[label == 1], np.sort(expected[label == 0])
    auc = np.searchsorted(negative, positive).sum() / (len(positive) * len(negative))
    assert auc == pytest.approx(inline[1], abs=1e-3)


def test_an_id_out_of_range_ends_the_job_with_its_place(clicks: Path, tmp_path: Path) -> None:
    rows = draw(2_500, seed=9)
    tags = rows["tags"].to_pylist()
    tags[2_100] = [3, NUM_TAGS, 5]
    path = tmp_path / "bad.parquet"
    column = pa.array(tags, pa.list_(pa.int32()))
    pq.write_table(rows.set_column(3, "tags", column), path, row_group_size=999)
    spec = spec_for(clicks, f"data.train={path}")
    view = run_inline(spec, tmp_path / "run", "job", lambda _: None)
    assert (view.state, view.reason) == (JobState.FAILED, "DataError")
    for part in (f"id {NUM_TAGS} of column 'tags' is not in 0..39", str(path), "row group: 2"):
        assert part in str(view.message)
    assert not (tmp_path / "run" / "model").exists()
