"""A model or checkpoint that takes long to write: slow is not stuck, and stuck is found."""

from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
from job_story import Story
from small_jobs import make_spec
from trained import new_trainer

from distrain.errors import ModelError
from distrain.jobs.events import Heartbeat
from distrain.jobs.reasons import Reason
from distrain.jobs.states import JobState
from distrain.models import tensor_file
from distrain.scheduler.lifecycle.messages import TakeStacks
from distrain.train.checkpoint import RankStore
from distrain.train.checkpoint.checkpoint_write import CheckpointWrite
from distrain.train.checkpoint.writer import CheckpointWriter
from distrain.train.control.control import Control
from distrain.train.control.step_agreement import StepAgreement
from distrain.train.loop import trainer as loop
from distrain.train.loop.trainer import Trainer
from distrain.train.timing.phases import PEERS, RankActivity

PROGRESS_S = 10.0
SLAB_BYTES = 4096


class Noting(RankActivity):
    """Notes the heartbeat that would follow each piece."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[Heartbeat] = []
        self.control: Control

    def count_slab(self) -> None:
        super().count_slab()
        self.beats.append(self.control.heartbeat(0))


def control_of_one() -> Control:
    store, activity = RankStore(), Noting()
    activity.control = Control(store, StepAgreement(store, 0, 1), activity)
    return activity.control


def trainer(prepared: Path, run_dir: Path, control: Control, *overrides: str) -> Trainer:
    spec = make_spec(
        prepared,
        "resources={backend: inline, num_ranks: 1}",
        "train.max_steps=1",
        "checkpoint.at_end=false",
        *overrides,
    )
    return new_trainer(spec, run_dir, control=control)[0]


@pytest.fixture(scope="module")
def beats(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Heartbeat]:
    """The heartbeats of a rank while it saves a model of many slabs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "SLAB_BYTES", SLAB_BYTES)
        patch.setattr(tensor_file, "SYNC_BYTES", 5 * SLAB_BYTES)
        control = control_of_one()
        run = trainer(prepared, tmp_path_factory.mktemp("run"), control)
        run.run()
    assert isinstance(control.activity, Noting)
    written = sum(w.numel() * w.element_size() for w in run.model.embeddings.weights)
    found = [beat for beat in control.activity.beats if beat.doing == "save"]
    assert len(found) > written // SLAB_BYTES > 20
    return found


def test_a_checkpoint_that_is_still_being_written_is_not_reported_as_saved(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = trainer(prepared, tmp_path, control_of_one())
    is_free, found = Event(), list[object]()
    write, wait = CheckpointWrite.run, CheckpointWriter.wait

    def save_twice(self: Trainer, _: float) -> bool:
        save = partial(self.checkpoints.save, 1, validated=True, elapsed_s=0.0, rows=1)
        monkeypatch.setattr(CheckpointWrite, "run", lambda one: is_free.wait() and write(one))
        monkeypatch.setattr(CheckpointWriter, "wait", lambda one, _=0.0: wait(one, 0.01))
        save()
        found.append(save(wait=True))
        is_free.set()
        monkeypatch.setattr(CheckpointWriter, "wait", wait)
        found.append(save(wait=True))
        return False

    monkeypatch.setattr(Trainer, "_train", save_twice)
    story.run()
    assert found == [None, True]


def test_a_model_that_takes_long_to_save_ends_no_job(beats: list[Heartbeat]) -> None:
    story = Story(2)
    story.running(progress_s=PROGRESS_S)
    for beat in beats:  # one piece takes nearly as long as may pass without progress
        story.rank("a", beat)
        story.rank("a", Heartbeat(1, beat.step, 1, "save", PEERS))
        assert story.wait(PROGRESS_S - 1) == []
    assert story.state() is JobState.RUNNING


def test_a_save_that_is_stuck_is_found_at_the_rank_that_writes(beats: list[Heartbeat]) -> None:
    story = Story(2)
    story.running(progress_s=PROGRESS_S)
    answers: list[Any] = []
    for _ in range(12):
        story.rank("a", beats[3])
        story.rank("a", Heartbeat(1, 1, 1, "save", PEERS))
        answers += story.wait(1.0)
    assert any(isinstance(answer, TakeStacks) for answer in answers)
    assert story.state() is JobState.STOPPING
    assert story.culprit().rank == 0
    assert story.culprit().reason == Reason.COLLECTIVE_TIMEOUT
    assert "hangs in save" in story.culprit().message


def test_a_model_that_cannot_score_keeps_its_own_message(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        loop,
        "evaluate_over_ranks",
        Mock(side_effect=ModelError("the dense part has no parameter to train")),
    )
    with pytest.raises(ModelError, match="no parameter"):
        trainer(prepared, tmp_path, Control.alone()).run()
