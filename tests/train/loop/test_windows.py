"""Windows in a training: each before the next, scored before it is trained, gone on from."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from small_jobs import make_spec
from trained import new_trainer, trained
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import SpecError
from distrain.jobs.events import EvaluationDone, Event
from distrain.jobs.run_paths import RunPaths
from distrain.loader import Dataset, Loader
from distrain.metrics import BinaryMetrics
from distrain.models import load_model
from distrain.train.checkpoint import CheckpointDir
from distrain.train.loop.evaluation import evaluate
from distrain.train.loop.trainer import Trainer

CPU = torch.device("cpu")

JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "data.windows={by: file}",
    "train={global_batch_size: 800, audit: true, max_steps: null, log_every_steps: 3}",
    "evaluate={next_window: true, at_end: false}",
    "checkpoint={every_s: null, keep: 9, window_models: true}",
)
BORDERS = [5, 10]  # 3,500 rows a window: four whole steps and one of 300
NAMES = ["part-1.parquet", "part-2.parquet"]


def train(prepared: Path, root: Path, attempt: int = 1, *overrides: str) -> tuple[Trainer, Any]:
    return trained(make_spec(prepared, *JOB, *overrides), root, attempt)


def scored(events: list[Event]) -> list[EvaluationDone]:
    return [event for event in events if isinstance(event, EvaluationDone)]


@pytest.fixture(scope="module")
def whole(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Any, Path]:
    root = tmp_path_factory.mktemp("whole")
    return *train(prepared, root), root


def test_each_window_is_scored_before_it_is_trained(
    whole: tuple[Trainer, Any, Path], prepared: Path
) -> None:
    trainer, events, root = whole
    found = scored(events)
    assert [(event.step, event.window) for event in found] == list(zip(BORDERS, NAMES, strict=True))
    steps = sorted(entry.step for entry in CheckpointDir(str(root / "checkpoints")).list())
    assert steps == [*BORDERS, 15]
    total = BinaryMetrics()
    for event in found:
        model = RunPaths(root).window_model(event.step)
        rows = Dataset(prepared / "train" / str(event.window), prepared / "schema.pbtxt")
        alone = evaluate(load_model(model).model, Loader(rows, batch_size=800), CPU)
        metrics = BinaryMetrics.from_json(event.metrics)
        assert metrics.rows == 3_500
        assert alone.main is not None
        assert metrics.compute().auc == alone.main.compute().auc
        total = total.merge(metrics)
    assert found[-1].progressive == trainer.progressive.figures()
    assert found[-1].progressive["rows"] == 7_000
    assert found[-1].progressive["auc"] == total.compute().auc
    assert found[-1].progressive["auc_bound"] < 1e-3


def test_a_window_is_scored_with_all_its_negatives(prepared: Path, tmp_path: Path) -> None:
    trainer, events = train(prepared, tmp_path, 1, "data.negatives=0.5")
    assert trainer.inputs.train.num_rows < 3 * 3_500
    assert [
        (event.window, BinaryMetrics.from_json(event.metrics).rows) for event in scored(events)
    ] == [(name, 3_500) for name in NAMES]


def test_a_window_has_its_model_after_a_kill_at_its_border(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("train.early_stopping={patience: 9}", "evaluate={every_steps: 5, at_end: false}")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_end_window", Mock(side_effect=KeyError("killed")))
        trainer, _ = new_trainer(make_spec(prepared, *JOB, *options), tmp_path, 1)
        with pytest.raises(KeyError):
            trainer.run()
    assert not RunPaths(tmp_path).window_model(5).exists()
    resumed, _ = train(prepared, tmp_path, 2, *options)
    assert resumed.start.step == 5
    saved = [RunPaths(tmp_path).window_model(step) for step in BORDERS]
    assert all(load_model(model).about["step"] for model in saved)


def written(root: Path, prepared: Path) -> Path:
    """The run folder with what the command writes there."""
    spec = make_spec(prepared, *JOB)
    (root / "spec.yaml").write_text(json.dumps(spec.model_dump(mode="json")))
    named = {"job_id": "job", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
    (root / "run.json").write_text(json.dumps(named))
    return root


def audited(root: Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["audit", str(root)])
    return result.exit_code, result.output


def test_a_row_that_came_before_its_window_is_named(
    whole: tuple[Trainer, Any, Path], prepared: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(written(whole[2], prepared), tmp_path / "run"))
    file = RunPaths(run).audit(rank=0, attempt=1)
    content = np.fromfile(file, "<i8")
    first = 2 + 3  # the first hash of the first step
    later = 2 + 5 * 3 + 3_500 + 3  # that of the first step of the second window
    content[[first, later]] = content[[later, first]]
    content.tofile(file)
    code, told = audited(run)
    assert code == 1
    assert "never trained: " in told
    assert told.count("NOT as expected") == 2
    assert "epoch 0, window part-2.parquet: 3,500 rows trained, each once" in told


def test_the_first_window_is_scored_by_a_run_that_begins_with_weights(
    whole: tuple[Trainer, Any, Path], prepared: Path, tmp_path: Path
) -> None:
    model = RunPaths(whole[2]).window_model(5)
    overrides = (f"data.train={prepared}/train/part-1.parquet", f"train.init_from={model}")
    _, events = train(prepared, tmp_path, 1, *overrides)
    (event,) = scored(events)
    assert (event.step, event.window) == (0, NAMES[0])
    assert event.metrics == scored(whole[1])[0].metrics


def test_later_epochs_score_no_window_again(prepared: Path, tmp_path: Path) -> None:
    options = ("train.epochs=2", "train.global_batch_size=3500", "checkpoint.window_models=false")
    _, events = train(prepared, tmp_path, 1, *options)
    assert [event.step for event in scored(events)] == [1, 2]
    steps = sorted(entry.step for entry in CheckpointDir(str(tmp_path / "checkpoints")).list())
    assert steps == [1, 2, 3, 4, 5, 6]


def test_what_needs_windows_is_refused_without(prepared: Path, wording: Wording) -> None:
    for field in ("evaluate.next_window", "checkpoint.window_models"):
        wording.refused(SpecError, partial(make_spec, prepared, f"{field}=true"))
