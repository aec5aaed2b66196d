"""What a run leaves for people."""

import json
import math

import numpy as np
import pytest
import yaml
from PIL import Image

from distrain import colours
from distrain.errors import OutputError
from distrain.events import PHASES
from distrain.jobs.states import JobState
from distrain.jobs.view import JobView, Record
from distrain.report import draw_curves
from distrain.report.axes import draw_metric
from distrain.report.figures import new_figure
from distrain.run_paths import RunPaths
from distrain.runs import open_run, summarise
from distrain.spec import parse_spec

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


def test_a_run_that_failed_halfway_tells_how_far_it_came():
    summary = summarise(view(state=JobState.FAILED, reason="RankDied"), TRAIN[:1])
    assert (summary.steps, summary.rows, summary.auc) == (10, 100, 0.7)
    assert summary.wall_s is summary.rows_per_s is None


def test_a_summary_is_json():
    document = summarise(view(**FINISHED), TRAIN).to_json()
    assert json.loads(json.dumps(document, allow_nan=False))["rows"] == 250


def test_a_run_directory_fills_as_the_job_runs(tmp_path):
    root = tmp_path / "runs" / "clicks-1"
    recorder = open_run(root, SPEC, "clicks-1")
    paths = RunPaths(root)
    assert parse_spec(yaml.safe_load(paths.spec.read_text())) == SPEC
    assert sorted(p.name for p in root.iterdir()) == ["run.json", "spec.yaml"]

    recorder.add(view(state=JobState.RUNNING))
    assert not paths.metrics.exists()
    recorder.add(view(TRAIN[:2], JobState.RUNNING))
    recorder.add(view([VALID[0]], JobState.RUNNING))
    lines = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    assert [(line["split"], line["step"]) for line in lines] == [
        ("train", 10), ("train", 20), ("valid", 20)
    ]  # fmt: skip
    assert set(lines[0]) == set(Record.__dataclass_fields__) - {"targets", "window", "progressive"}
    again = [Record(**{**line, "stall_pct": tuple(line["stall_pct"])}) for line in lines]
    assert again == [*TRAIN[:2], VALID[0]]

    summary = recorder.finish(view(**FINISHED), draw_curves)
    assert json.loads(paths.summary.read_text()) == json.loads(json.dumps(summary.to_json()))
    assert sorted(p.name for p in root.iterdir()) == [
        "curves.png", "metrics.jsonl", "run.json", "spec.yaml", "summary.json"
    ]  # fmt: skip
    with Image.open(paths.curves) as picture:
        picture.verify()
        assert picture.format == "PNG"
        assert min(picture.size) > 400


def test_a_run_without_records_has_a_summary_and_no_curves(tmp_path):
    recorder = open_run(tmp_path / "a", SPEC, "clicks-1")
    recorder.finish(view(state=JobState.CANCELLED, reason="Cancelled"), draw_curves)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "run.json", "spec.yaml", "summary.json"
    ]  # fmt: skip


def test_a_directory_that_holds_a_run_is_refused_and_left_alone(tmp_path):
    with open_run(tmp_path / "a", SPEC, "clicks-1") as recorder:
        recorder.add(view(TRAIN))
    with pytest.raises(OutputError, match="holds a run already") as caught:
        open_run(tmp_path / "a", SPEC, "clicks-2")
    assert caught.value.where == {"path": str(tmp_path / "a")}
    assert len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_directory_that_exists_and_holds_no_run_is_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    open_run(tmp_path, SPEC, "clicks-1").close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["file", "file/run", "x" * 300])
def test_a_directory_that_cannot_be_made_is_told(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        open_run(tmp_path / name, SPEC, "clicks-1")


def test_records_that_cannot_be_written_are_told(tmp_path):
    with open_run(tmp_path, SPEC, "clicks-1") as recorder:
        (tmp_path / "metrics.jsonl").mkdir()
        with pytest.raises(OutputError, match="directory") as caught:
            recorder.add(view(TRAIN))
    assert caught.value.where == {"path": str(tmp_path / "metrics.jsonl")}


@pytest.mark.parametrize(
    "records",
    [
        TRAIN[:1],
        VALID,
        [record(auc=None, auc_bound=None, loss=None, normalised_entropy=None, rows_per_s=None)],
        [record(seconds=None, stall_pct=())],
        [record(seconds=dict.fromkeys(PHASES, 0.0), rows_total=0)],
    ],
    ids=["one record", "validation only", "one class", "no times", "no time at all"],
)
def test_any_run_can_be_drawn(tmp_path, records):
    path = tmp_path / "picture"
    draw_curves(records, "title with $ and _", path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert np.asarray(picture).std() > 1  # something is drawn


def drawn_losses(train, valid):
    axes = new_figure(5, 4).subplots()
    draw_metric(axes, train, valid, "loss", "log loss")
    marks = [line for line in axes.get_lines() if line.get_marker() in "^v"]
    return axes.get_ylim(), marks


def test_a_validation_that_gets_worse_is_not_cut_off():
    epochs = range(1, 11)
    train = [record(step=epoch, rows_total=100 * epoch, loss=0.13 - 0.01 * epoch, epoch=epoch)
             for epoch in epochs]  # fmt: skip
    valid = [record("valid", step=epoch, rows_total=100 * epoch, loss=0.12 + 0.0244 * (epoch - 1))
             for epoch in epochs]  # fmt: skip
    (low, high), marks = drawn_losses(train, valid)
    assert low < 0.03
    assert 0.34 < high < 0.4
    assert marks == []


def test_a_wild_start_is_told_by_arrows_and_does_not_flatten_the_rest():
    losses = [9.0, 3.0, *(0.6 - 0.005 * step for step in range(38))]
    train = [record(step=n, rows_total=100 * n, loss=loss) for n, loss in enumerate(losses, 1)]
    (low, high), (mark,) = drawn_losses(train, [record("valid", step=40, loss=0.5)])
    assert low < min(losses)
    assert 0.6 < high < 9.0
    assert list(mark.get_xdata()) == [
        record.rows_total / 1e6 for record in train if record.loss > high
    ]
    assert mark.get_label() == "outside, as far as 9"


def test_losses_that_are_not_finite_are_left_out():
    train = [record(step=n, loss=loss) for n, loss in enumerate([0.5, math.nan, 0.4, math.inf], 1)]
    (low, high), marks = drawn_losses(train, [])
    assert 0.3 < low < 0.4
    assert 0.5 < high < 0.6
    assert marks == []


def test_every_phase_has_its_colour():
    assert tuple(colours.PHASES) == PHASES
