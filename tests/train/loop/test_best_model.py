"""The model that a run leaves is that of its best validation, and a run that gets worse ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from small_jobs import draw_rows, make_spec, write_prepared
from trained import trained_view

from distrain.jobs.job_view import JobView, Notice
from distrain.metrics.exact import Bounded
from distrain.models import load_model
from distrain.models.saved_model import model_tensors
from distrain.runs.summary import summarise
from distrain.train.checkpoint import CheckpointDir
from distrain.train.loop import trainer as loop
from distrain.train.loop.evaluation import Evaluation, evaluate_over_ranks

# A learning rate at which the validation gets worse after a few steps.
JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 500, max_steps: 20, log_every_steps: 2}",
    "evaluate={every_steps: 2}",
    "checkpoint={every_s: null, keep: 1}",
)
STOPPING = "train.early_stopping={metric: auc, patience: 2}"
AUCS = [0.6, 0.7, 0.8, 0.8, 0.75, 0.9, 0.95, 0.9, 0.9, 0.9]
"""What the validations of a run shall seem to give: the best of the first five is at step 6."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_prepared(tmp_path_factory.mktemp("prepared"))
    # Validations seem to give what is known beforehand, so a few rows do.
    pq.write_table(draw_rows(500, seed=60), root / "valid" / "part-0.parquet")
    return root


@pytest.fixture(autouse=True)
def aucs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let validations have AUCs that are known beforehand, by the step they are of."""
    evaluate = loop.Trainer._evaluate
    step = 0

    def told_evaluate(trainer: loop.Trainer) -> None:
        nonlocal step
        step = trainer.taken
        evaluate(trainer)

    def told(*args: Any) -> Evaluation:
        found = evaluate_over_ranks(*args)
        auc = Bounded(AUCS[step // 2 - 1], 0.0)
        return replace(found, from_scores={found.merged.main_name: auc})

    monkeypatch.setattr(loop.Trainer, "_evaluate", told_evaluate)
    monkeypatch.setattr(loop, "evaluate_over_ranks", told)


def train(prepared: Path, root: Path, attempt: int, *overrides: str) -> JobView:
    return trained_view(make_spec(prepared, *JOB, *overrides), root, attempt)


def steps_kept(root: Path) -> list[int]:
    return [entry.step for entry in CheckpointDir(str(root / "checkpoints")).list()]


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    model = load_model(path).model
    return {
        name: tensor if isinstance(tensor, torch.Tensor) else tensor.read(slice(0, tensor.shape[0]))
        for name, tensor in model_tensors(model).items()
    }


def same(one: Path, other: Path) -> bool:
    mine, its = tensors_of(one), tensors_of(other)
    return mine.keys() == its.keys() and all(torch.equal(mine[n], its[n]) for n in mine)


def test_patience_ends_the_run_and_the_best_is_saved(prepared: Path, tmp_path: Path) -> None:
    view = train(prepared, tmp_path / "run", 1, STOPPING)
    assert view.stopped_early == {
        "step": 10,
        "rows": 10 * 500,
        "metric": "auc",
        "best_step": 6,
        "best_value": 0.8,
        "waited": 2,
    }
    assert (view.num_steps, view.total_rows, view.model_step) == (10, 5000, 6)
    assert steps_kept(tmp_path / "run") == [10, 6]
    train(prepared, tmp_path / "short", 1, "train.max_steps=6")
    assert same(tmp_path / "run" / "model", tmp_path / "short" / "model")
    notices = [entry for entry in view.progress if isinstance(entry, Notice)]
    text = "stopped early after step 10: 2 validations without a better auc than 0.8 of step 6"
    assert notices[-1:] == [Notice(text, is_warning=False)]
    summary = summarise(view, view.records)
    assert (summary.steps, summary.rows) == (10, 5000)
    assert (summary.model_step, summary.scored_on, summary.scored_step) == (6, "valid", 6)
    assert summary.to_json()["stopped_early"]["best_step"] == 6
    json.dumps(summary.to_json())


def test_more_patience_takes_a_run_that_stopped_further(prepared: Path, tmp_path: Path) -> None:
    train(prepared, tmp_path / "run", 1, STOPPING)
    again = train(prepared, tmp_path / "run", 2, STOPPING)
    assert again.stopped_early is not None
    assert (again.stopped_early["step"], again.model_step) == (10, 6), "the decision stands"
    further = train(prepared, tmp_path / "run", 3, STOPPING, "train.early_stopping.patience=3")
    whole = train(prepared, tmp_path / "whole", 1, STOPPING, "train.early_stopping.patience=3")
    assert further.stopped_early == whole.stopped_early
    assert (further.num_steps, further.model_step) == (20, 14)
    assert same(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_keep_best_alone_takes_all_steps(prepared: Path, tmp_path: Path) -> None:
    best = "checkpoint={every_s: null, keep: 1, keep_best: auc, at_end: false}"
    view = train(prepared, tmp_path / "run", 1, best)
    assert (view.stopped_early, view.num_steps, view.model_step) == (None, 20, 14)
    assert steps_kept(tmp_path / "run") == [20, 14], "the last one lies in its checkpoint"
    plain = train(prepared, tmp_path / "plain", 1)
    assert plain.model_step == 20
    assert not same(tmp_path / "run" / "model", tmp_path / "plain" / "model")
    # The last state is whole: training goes on from it as if nothing had been loaded back.
    train(prepared, tmp_path / "run", 2, best, "train.max_steps=20", "checkpoint.keep_best=null")
    assert same(tmp_path / "run" / "model", tmp_path / "plain" / "model")


@pytest.mark.parametrize("how", ["gone", "cut", "bit"])
def test_the_last_model_is_saved_where_the_best_cannot_be_read(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = tmp_path / "run" / "checkpoints"

    def damage(*arguments: Any) -> int:
        (folder,) = place.glob("step-*6-a1")
        (shard,) = folder.glob("rank-*")
        content = bytearray(shard.read_bytes())
        if how == "gone":
            (folder / "manifest.json").unlink()
        elif how == "cut":
            shard.write_bytes(content[:-1])
        else:  # in the last weights of the file: others have been read when it shows
            (file,) = json.loads((folder / "manifest.json").read_bytes())["content"]["files"]
            weights = [p for p in file["pieces"] if p[0].startswith(("dense.", "embeddings."))]
            content[max(offset for *_, offset, _ in weights)] ^= 1
            shard.write_bytes(content)
        return read(*arguments)

    from distrain.train.loop.early_stopping import read_best_weights as read

    monkeypatch.setattr("distrain.train.loop.checkpoints.read_best_weights", damage)
    view = train(prepared, tmp_path / "run", 1, STOPPING)
    assert view.model_step == 10
    notices = [entry.text for entry in view.progress if isinstance(entry, Notice)]
    assert "the weights of the best validation, at step 6, cannot be read" in notices[-1]
    assert "the last step, 10" in notices[-1]
    train(prepared, tmp_path / "short", 1, "train.max_steps=10")
    assert same(tmp_path / "run" / "model", tmp_path / "short" / "model")
