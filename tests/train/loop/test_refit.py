"""A refit is the training of all rows that validations have found the length of."""

import shutil
from pathlib import Path

import pytest
from small_jobs import make_spec, saved_weights
from trained import trained_view
from wording import Wording

from distrain.errors import SpecError
from distrain.jobs.job_view import JobView, Record
from distrain.runs.summary import summarise
from distrain.train.checkpoint import CheckpointDir

# 15 steps of an epoch; 20 with the validation rows.
JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 700, epochs: 2, log_every_steps: 4}",
    "train.optimizer={kind: adagrad, lr: 0.05}",
    "checkpoint={every_s: null, every_steps: 5, keep: 20, keep_best: log_loss}",
    "evaluate.every_steps=6",
)


def train(prepared: Path, root: Path, attempt: int, *overrides: str) -> JobView:
    return trained_view(make_spec(prepared, *JOB, *overrides), root, attempt)


def best_of(view: JobView) -> Record:
    valid = [record for record in view.records if record.split == "valid"]
    return min(valid, key=lambda record: record.loss or 0.0)


def test_it_is_a_training_of_all_rows_for_as_many_passes(prepared: Path, tmp_path: Path) -> None:
    view = train(prepared, tmp_path / "run", 1, "train.refit=true")
    best, steps = best_of(view), [record.step for record in view.records if record.split == "train"]
    passes = 20 * round(best.step / 15)
    assert view.refit is not None
    assert (view.refit["step"], view.refit["found_step"]) == (30, best.step)
    assert view.num_steps == 30 + passes == steps[-1]
    assert steps == sorted({*steps})
    both = f"data.train=['{prepared}/train', '{prepared}/valid']"
    alone = ("data.valid=[]", "evaluate={at_end: false}", "checkpoint.keep_best=null")
    oracle = train(prepared, tmp_path / "all", 1, both, f"train.max_steps={passes}", *alone)
    assert saved_weights(tmp_path / "run") == saved_weights(tmp_path / "all")
    assert view.total_rows == 30 * 700 + (oracle.total_rows or 0)
    summary = summarise(view, view.records)
    assert (summary.scored_step, summary.log_loss) == (best.step, best.loss)
    assert (summary.model_step, summary.steps, summary.refit) == (best.step, steps[-1], view.refit)
    assert summary.rows == view.total_rows


@pytest.mark.slow
def test_damaged_checkpoints_of_it_take_it_back_to_its_beginning(
    prepared: Path, tmp_path: Path
) -> None:
    decay = ("train.refit=true", "train.schedule={warmup_steps: 4, decay: cosine}")
    view = train(prepared, tmp_path / "run", 1, *decay)
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "whole" / "model")
    for entry in CheckpointDir(str(tmp_path / "run" / "checkpoints")).list():
        if entry.step > 30:
            (shard,) = Path(entry.url).glob("rank-*")
            shard.write_bytes(shard.read_bytes()[:-100])
    again = train(prepared, tmp_path / "run", 2, *decay)
    assert (again.rows_before, again.refit) == (30 * 700, view.refit)
    assert saved_weights(tmp_path / "run") == saved_weights(tmp_path / "whole")


@pytest.mark.parametrize(
    "field",
    [
        "data.valid=[]",
        "data.negatives=0.5",
        "data.windows={by: C1, size: 1}",
        "train.reduce_on_plateau={factor: 0.5}",
        "train.audit=true",
    ],
)
def test_what_it_goes_without(prepared: Path, field: str, wording: Wording) -> None:
    none = ("evaluate={every_steps: null}",) if field == "data.valid=[]" else ()
    with pytest.raises(SpecError) as refused:
        make_spec(prepared, *JOB, "train.refit=true", *none, field)
    wording(refused.value)
