"""A job without a supervisor saves by its own clock and goes on from what is whole."""

from pathlib import Path

import pytest
import torch
from small_jobs import make_spec
from ticks import Ticks
from trained import of_kind, trained
from wording import Wording

from distrain.errors import SpecError
from distrain.jobs.events import (
    CheckpointSaved,
    EvaluationDone,
    Event,
    StepsDone,
    TrainingStarted,
)
from distrain.metrics import BinaryMetrics
from distrain.models import load_model
from distrain.predict.load_model import load_checkpoint
from distrain.train.checkpoint import CheckpointDir
from distrain.train.loop import checkpoints as loop_checkpoints
from distrain.train.loop.evaluation import evaluate
from distrain.train.loop.trainer import Trainer

pytestmark = pytest.mark.usefixtures("undrawn")

JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 700, max_steps: 12, log_every_steps: 4}",
    "checkpoint={every_steps: 3, every_s: null, keep: 9}",
)


def train(prepared: Path, root: Path, attempt: int, *overrides: str) -> tuple[Trainer, list[Event]]:
    return trained(make_spec(prepared, *JOB, *overrides), root, attempt)


def checkpoints(root: Path) -> list[int]:
    return sorted(entry.step for entry in CheckpointDir(str(root / "checkpoints")).list())


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return trainer.model.state_dict()


def same(one: Trainer, other: Trainer) -> bool:
    mine, its = weights_of(one), weights_of(other)
    return all(torch.equal(mine[name], its[name]) for name in mine)


def damage(root: Path, step: int, *, cut: bool) -> None:
    (shard,) = (root / "checkpoints").glob(f"step-*{step}-a*/rank-*")
    content = bytearray(shard.read_bytes())
    if cut:
        content = content[:100]
    else:  # far enough in, so that it shows when a part has been taken over
        content[-100] ^= 1
    shard.write_bytes(content)


def test_if_all_are_damaged_it_begins_anew(prepared: Path, tmp_path: Path) -> None:
    whole, _ = train(prepared, tmp_path / "whole", 1)
    train(prepared, tmp_path / "run", 1, "train.max_steps=3")
    damage(tmp_path / "run", 3, cut=False)
    resumed, events = train(prepared, tmp_path / "run", 2)
    (started,) = of_kind(events, TrainingStarted)
    assert isinstance(started, TrainingStarted)
    assert (started.first_step, started.checkpoint, started.elapsed_before_s) == (0, None, 0.0)
    assert same(resumed, whole)


def test_a_job_that_is_done_only_saves_its_model_again(prepared: Path, tmp_path: Path) -> None:
    first, _ = train(prepared, tmp_path, 1)
    again, events = train(prepared, tmp_path, 2)
    assert same(first, again)
    assert not of_kind(events, StepsDone)
    assert not of_kind(events, CheckpointSaved)
    assert checkpoints(tmp_path) == [3, 6, 9, 12]


def test_a_job_may_be_made_longer_and_shorter(
    prepared: Path, tmp_path: Path, wording: Wording
) -> None:
    whole, _ = train(prepared, tmp_path / "whole", 1)
    train(prepared, tmp_path / "run", 1, "train.max_steps=5", "evaluate.at_end=false")
    # Shorter: what is left to do is the report of a window that is open. Here there is none.
    _, events = train(prepared, tmp_path / "run", 2, "train.max_steps=5")
    assert not of_kind(events, StepsDone)
    longer, events = train(prepared, tmp_path / "run", 3)
    assert same(longer, whole)
    reports = [event for event in events if isinstance(event, StepsDone)]
    # The last report was after step 5, since that was the last one.
    assert [report.step for report in reports] == [8, 12]
    assert BinaryMetrics.from_json(dict(reports[0].metrics)).rows == 3 * 700
    wording.refused(SpecError, lambda: train(prepared, tmp_path / "run", 4, "train.max_steps=8"))


def test_a_window_that_was_open_is_reported_by_a_job_that_became_shorter(
    prepared: Path, tmp_path: Path
) -> None:
    train(prepared, tmp_path, 1, "train.max_steps=7", "checkpoint.at_end=false")
    assert checkpoints(tmp_path) == [3, 6]
    _, events = train(prepared, tmp_path, 2, "train.max_steps=6")
    (report,) = of_kind(events, StepsDone)
    assert isinstance(report, StepsDone)
    assert report.step == 6
    assert BinaryMetrics.from_json(dict(report.metrics)).rows == 2 * 700


def test_its_own_clock_tells_when_to_save(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_checkpoints, "time", Ticks())
    train(prepared, tmp_path, 1, "checkpoint={every_steps: null, every_s: 5.0, at_end: false}")
    # Each look at the clock takes a second, and each checkpoint begins the count anew.
    assert checkpoints(tmp_path) == [5, 10]


def test_averages_are_scored_saved_and_read_from_checkpoints(
    prepared: Path, tmp_path: Path
) -> None:
    averaging = (
        "train.ema=0.3",
        "train.optimizer={kind: adam, lr: 0.01}",
        "evaluate.every_steps=4",
    )
    trainer, events = train(prepared, tmp_path / "run", 1, *averaging)
    saved = weights_of(trainer)  # of the average, which the model has in the end
    entries = CheckpointDir(str(tmp_path / "run/checkpoints")).list()
    entry = max(entries, key=lambda entry: entry.step)
    for model in (load_model(tmp_path / "run/model").model, load_checkpoint(entry.url).model):
        assert all(torch.equal(saved[name], own) for name, own in model.state_dict().items())
    live, others = train(prepared, tmp_path / "live", 1, *averaging[1:])
    assert not torch.equal(
        weights_of(live)["dense.task.logit.weight"], saved["dense.task.logit.weight"]
    )
    # Training itself is as without.
    losses = [[e.metrics for e in of_kind(some, StepsDone)] for some in (events, others)]
    assert losses[0] == losses[1]
    last = of_kind(events, EvaluationDone)[-1]
    metrics = evaluate(
        trainer.model, trainer._loader(trainer.inputs.valid, shuffle="none"), trainer.device
    )
    assert last.metrics == metrics.to_json()
