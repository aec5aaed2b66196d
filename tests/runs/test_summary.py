"""What a run leaves for people."""

import json

import numpy as np
import pytest
import yaml
from kept_runs import new_run
from PIL import Image

from distrain.errors import OutputError
from distrain.jobs.events import PHASES
from distrain.jobs.job_view import JobView, Record
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.attempts import read_records
from distrain.runs.open_run import open_run
from distrain.runs.report.figures import draw_curves
from distrain.runs.summary import summarise

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})


def record(split="train", step=10, rows=100, rows_total=100, epoch=0, **fields):
    train = split == "train"
    values = {
        "elapsed_s": step / 10,
        "rows_per_s": 50.0 if train else None,
        "loss": 0.5,
        "normalised_entropy": 0.9,
        "auc": 0.7,
        "auc_bound": 1e-4,
        "stall_pct": (25.0, 50.0) if train else (),
        "seconds": {**dict.fromkeys(PHASES, 0.0), "data_wait": 1.0, "optimizer": 3.0}
        if train
        else None,
        "lr": 0.1 if train else None,
        **fields,
    }
    return Record(split, epoch, step, rows, rows_total, **values)


def view(records=(), state=JobState.SUCCEEDED, **fields):
    return JobView("clicks-1", "clicks", state, 1, 2, progress=tuple(records), **fields)


TRAIN = [
    record(step=10, rows_total=100, loss=9.0),
    record(step=20, rows_total=200, epoch=1, loss=0.6),
    record(step=25, rows=50, rows_total=250, epoch=1, loss=0.3, auc=0.8),
]
VALID = [
    record("valid", step=20, rows=40, rows_total=200, auc=0.71),
    record("valid", step=25, rows=40, rows_total=250, auc=0.72, loss=0.45),
]
FINISHED = {
    "rank_seconds": ({"optimizer": 8.0, "evaluate": 2.0}, {"optimizer": 5.0, "evaluate": 4.0}),
    "rank_stall_pct": (0.0, 10.0),
    "parameters": 12,
    "model_path": "runs/a/model",
}


def test_a_run_is_summed_up_on_its_validation_rows():
    summary = summarise(view(**FINISHED), [*TRAIN[:2], VALID[0], TRAIN[2], VALID[1]])
    assert (summary.state, summary.reason, summary.steps, summary.rows) == (
        "succeeded", None, 25, 250
    )  # fmt: skip
    assert (summary.scored_on, summary.scored_rows) == ("valid", 40)
    assert (summary.auc, summary.log_loss, summary.auc_bound) == (0.72, 0.45, 1e-4)
    assert summary.train_loss == pytest.approx((0.6 * 100 + 0.3 * 50) / 150)
    assert summary.wall_s == 10.0
    assert summary.rows_per_s == 250 / 8.0  # of the rank that trained longest
    assert (summary.stall_pct, summary.parameters) == ((0.0, 10.0), 12)
    assert summary.model == "runs/a/model"


def test_without_validation_rows_the_last_training_rows_count():
    summary = summarise(view(**FINISHED), TRAIN)
    assert (summary.scored_on, summary.scored_rows, summary.auc) == ("train", 50, 0.8)


def test_a_run_that_never_trained_has_no_figures():
    failed = view(state=JobState.FAILED, reason="DataError", message="label is 2")
    summary = summarise(failed, [])
    assert (summary.state, summary.reason, summary.message) == ("failed", "DataError", "label is 2")
    assert (summary.rows, summary.steps, summary.stall_pct) == (0, 0, ())
    for figure in ("wall_s", "rows_per_s", "train_loss", "scored_on", "auc", "log_loss", "model"):
        assert getattr(summary, figure) is None


def test_a_run_folder_fills_as_the_job_runs(tmp_path):
    root = tmp_path / "runs" / "clicks-1"
    paths = RunPaths(root)
    with new_run(root, SPEC) as run:
        assert parse_spec(yaml.safe_load(paths.spec.read_text())) == SPEC
        assert sorted(p.name for p in root.iterdir()) == ["run.json", "spec.yaml"]
        run.add(view(state=JobState.RUNNING))
        assert read_records(paths) == []
        run.add(view(TRAIN[:2], JobState.RUNNING))
        run.add(view([VALID[0]], JobState.RUNNING))
        assert read_records(paths) == [*TRAIN[:2], VALID[0]]
        summary = run.finish(view(**FINISHED))
    assert json.loads(paths.summary.read_text()) == json.loads(json.dumps(summary.to_json()))
    assert sorted(p.name for p in root.iterdir()) == [
        "records", "run.json", "spec.yaml", "summary.json"
    ]  # fmt: skip


def test_a_folder_that_cannot_be_used_is_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("x")
    with new_run(tmp_path / "a", SPEC) as run:
        run.add(view(TRAIN))
        for name in ("a", "file", "file/run", "x" * 300):
            with pytest.raises(OutputError):
                open_run(tmp_path / name, SPEC, "clicks-1")
        assert run.records == TRAIN
    with new_run(tmp_path, SPEC) as run:  # it holds no run
        (tmp_path / "records").write_text("")
        with pytest.raises(OutputError) as caught:
            run.add(view(TRAIN))
    assert caught.value.where == {"path": str(RunPaths(tmp_path).attempt_records(1))}
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    "records",
    [
        VALID,
        [record(auc=None, auc_bound=None, loss=None, normalised_entropy=None, rows_per_s=None)],
        [record(seconds=None, stall_pct=(), rows_total=0)],
    ],
    ids=["validation only", "one class", "no times"],
)
def test_any_run_can_be_drawn(tmp_path, records):
    draw_curves(records, "title with $ and _", tmp_path / "picture", model_step=1)
    with Image.open(tmp_path / "picture") as picture:
        assert np.asarray(picture).std() > 1  # something is drawn
