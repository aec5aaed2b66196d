"""A training on a tenth of the negatives: validation and saved models give calibrated scores."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from trained import trained
from wording import Wording

from distrain.errors import DataError, SpecError
from distrain.jobs.events import EvaluationDone, StepsDone
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.loader.batch import Batch
from distrain.metrics import BinaryMetrics, BinaryReport
from distrain.models import load_model
from distrain.models.export import ScoringModel
from distrain.models.heads import BinaryClassificationTask, ItemRetrievalTask, RegressionTask
from distrain.predict.load_model import open_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.data.inputs import check_negatives, read_inputs

pytestmark = pytest.mark.usefixtures("undrawn")

EFFECTS = np.random.default_rng(7).normal(0, 0.8, 20)


def draw(rows: int, seed: int) -> pa.Table:
    """Clicks of 10 % of the rows, by a logistic model of two numbers and an id."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, rows)).astype(np.float32)
    ids = rng.integers(0, 20, rows)
    chance = 1 / (1 + np.exp(2.5 - 0.8 * x + 0.5 * y - EFFECTS[ids]))
    label = (rng.random(rows) < chance).astype(np.float32)
    return pa.table({"label": label, "x": x, "y": y, "id": ids.astype(np.int32)})


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    for name, rows, seed in (("train", 400_000, 1), ("valid", 50_000, 2)):
        (folder / name).mkdir()
        pq.write_table(draw(rows, seed), folder / name / "a.parquet", row_group_size=20_000)
    Schema(
        (
            ColumnSchema("label", "float32", (Tags.TARGET,)),
            ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),
            ColumnSchema("y", "float32", (Tags.CONTINUOUS,)),
            ColumnSchema("id", "int32", (Tags.CATEGORICAL,), cardinality=20),
        )
    ).save(folder / "schema.pbtxt")
    return folder


def make_spec(folder: Path, *overrides: str) -> JobSpec:
    document = {
        "data": {"train": str(folder / "train"), "valid": str(folder / "valid")},
        "model": {"kind": "mlp", "embedding_dim": 4, "hidden": []},
        "train": {
            "global_batch_size": 20_000,
            "epochs": 6,
            "log_every_steps": 10,
            "optimizer": {"kind": "adam", "lr": 0.1},
            "schedule": {"decay": "linear"},
        },
        "checkpoint": {"at_end": True},
        "resources": {"num_ranks": 1, "device": "cpu", "backend": "inline"},
    }
    return parse_spec(document, overrides)


def train(folder: Path, root: Path, *overrides: str) -> tuple[BinaryReport, BinaryReport]:
    """The last report of training and of validation."""
    spec = make_spec(folder, *overrides)
    _, events = trained(spec, root)

    def last(kind: type[StepsDone] | type[EvaluationDone]) -> BinaryReport:
        state = [event for event in events if isinstance(event, kind)][-1].metrics
        return BinaryMetrics.from_json(state).compute()

    return last(StepsDone), last(EvaluationDone)


@pytest.mark.slow
def test_scores_are_those_of_all_rows(planted: Path, tmp_path: Path) -> None:
    _, expected = train(planted, tmp_path / "all")
    trained, found = train(
        planted, tmp_path / "some", "data.negatives=0.1", "train.global_batch_size=3000"
    )
    assert found.rows == 50_000
    assert abs(found.calibration / expected.calibration - 1) < 0.01
    assert abs(found.auc - expected.auc) < 0.005
    assert abs(trained.auc - expected.auc) < 0.02
    assert 0.8 < trained.calibration < 1.25  # of the rows that it saw

    folder = RunPaths(tmp_path / "some").model
    saved = load_model(folder)
    assert json.loads((folder / "model.json").read_text())["logit_shift"] == math.log(0.1)
    (checkpoint,) = (tmp_path / "some" / "checkpoints").glob("*/manifest.json")
    rows = draw(50, 3)
    columns = (("x", "y"), ("id",))
    batch = Batch(
        torch.from_numpy(rows["id"].to_numpy()[:, None].copy()),
        torch.from_numpy(np.stack([rows["x"].to_numpy(), rows["y"].to_numpy()], 1)),
        None, columns[1], columns[0],
    )  # fmt: skip
    plain = saved.model.task.logits(saved.model.output(batch))
    scores = saved.model.eval()(batch)
    assert torch.equal(scores, plain + math.log(0.1))
    assert torch.equal(scores, open_model(checkpoint.parent).model.eval()(batch))
    exported = ScoringModel(saved.model)(batch.categorical.long(), batch.continuous)
    assert torch.allclose(exported, scores, atol=1e-6)
    assert not (tmp_path / "all/model/model.json").read_text().count("logit_shift")


def test_a_spoilt_shift_is_refused(planted: Path, tmp_path: Path) -> None:
    train(planted, tmp_path / "some", "data.negatives=0.5", "train.max_steps=2")
    file = RunPaths(tmp_path / "some").model / "model.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"logit_shift": "much"}))
    with pytest.raises(DataError, match="logit_shift"):
        load_model(file.parent)


def test_validation_is_not_thinned_and_other_targets_are_refused(
    planted: Path, wording: Wording
) -> None:
    some = read_inputs(make_spec(planted, "data.negatives=0.1"))
    assert some.valid is not None
    assert some.valid.num_rows == 50_000
    assert some.train.num_rows < 90_000
    two = Schema((*some.schema.columns, ColumnSchema("bought", "float32", (Tags.TARGET,))))
    data = make_spec(planted, "data.negatives=0.1").data
    for schema, task in (
        (some.schema, RegressionTask("label")),
        (two, BinaryClassificationTask("label")),
        (some.schema, ItemRetrievalTask()),
    ):
        wording.refused(SpecError, partial(check_negatives, data, schema, task))
    check_negatives(data, some.schema, BinaryClassificationTask("label", outputs=2))
    with pytest.raises(SpecError, match=r"data\.negatives"):
        make_spec(planted, "data.negatives=0")
