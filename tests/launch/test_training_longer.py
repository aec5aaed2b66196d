"""A run that has succeeded goes on where that changes none of its steps, or is told why not."""

import shlex
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from small_jobs import small_document

import distrain
from distrain.errors import ClusterError, InputError, JobError, OutputError, SpecError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.launch.reporting import LoggedProgress
from distrain.launch.resuming import find_run, how_to_resume
from distrain.launch.run import RunRequest, train
from distrain.runs.attempts import read_records

pytestmark = pytest.mark.usefixtures("undrawn")

PATIENT = ("train.early_stopping={patience: 9}", "evaluate.every_steps=2")
QUICK = ("resources={backend: inline, num_ranks: 1, device: cpu}", "train.max_steps=4")


def fit(prepared, root, *overrides):
    return distrain.fit(parse_spec(small_document(prepared), [*QUICK, *overrides]), run_dir=root)


def resume(root, *overrides):
    job_id, spec, resumed = find_run(root, overrides)
    return train(RunRequest(spec, root, job_id, resumed=resumed), LoggedProgress())


@pytest.fixture
def trained(prepared, tmp_path):
    fit(prepared, tmp_path / "run")
    return tmp_path / "run"


def files_of(root):
    """What users and later commands read of a run, and its model."""
    kept = [root / name for name in ("spec.yaml", "summary.json", "records/attempt-1.jsonl")]
    kept += sorted(path for path in (root / "model").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in kept}


def broken(*_):
    raise OutputError("no room on this machine")


def dense_of(run_dir):
    from distrain.models import load_model

    return load_model(run_dir / "model").model.state_dict()


def test_a_longer_training_that_was_killed_goes_on(trained):
    written = RunPaths(trained).attempt_records(1).read_text()
    RunPaths(trained).attempt_records(2).write_text(written.replace('"attempt":1', '"attempt":2'))
    assert find_run(trained, ())[2].first_attempt == 3


def test_a_constant_rate_goes_on_from_the_last_checkpoint_as_a_new_attempt(
    prepared, tmp_path, wording
):
    warm_up = "train.schedule.warmup_steps=3"
    fit(prepared, tmp_path / "run", warm_up)
    wording.refused(InputError, lambda: find_run(tmp_path / "run", ()))
    summary = resume(tmp_path / "run", "train.max_steps=7")
    assert (summary.attempts, summary.steps, summary.state) == (2, 7, "succeeded")
    records = read_records(RunPaths(tmp_path / "run"))
    assert [record.step for record in records if record.split == "train"] == [4, 5, 7]
    fit(prepared, tmp_path / "whole", warm_up, "train.max_steps=7")
    mine, its = dense_of(tmp_path / "run"), dense_of(tmp_path / "whole")
    assert all(torch.equal(mine[name], its[name]) for name in its)


def test_a_run_that_stopped_early_is_told_how_to_go_on(prepared, tmp_path, wording):
    stopping = (
        "evaluate.every_steps=1",
        "train.early_stopping={patience: 1, min_delta: 1}",
    )
    run = fit(prepared, tmp_path / "run", *stopping)
    assert run.summary.stopped_early["step"] == 2
    wording.refused(InputError, lambda: find_run(tmp_path / "run", ()))
    summary = resume(tmp_path / "run", "train.early_stopping.patience=2")
    assert summary.stopped_early["step"] == 3
    summary = resume(tmp_path / "run", "train.early_stopping=null")
    assert (summary.stopped_early, summary.steps) == (None, 4)


def test_a_resume_that_fails_before_its_first_step_leaves_a_run_that_had_succeeded(
    trained, monkeypatch
):
    """It passes the checks here: what is wrong shows on the ranks' machines alone."""
    before = files_of(trained)
    monkeypatch.setattr("distrain.train.rank.process._train", broken)
    with pytest.raises(JobError):
        resume(trained, "train.max_steps=9")
    assert files_of(trained) == before
    monkeypatch.setattr(
        "distrain.launch.run.open_cluster", Mock(side_effect=ClusterError("no scheduler answers"))
    )
    with pytest.raises(ClusterError):
        resume(trained, "train.max_steps=9", "resources.backend=dask")
    assert files_of(trained) == before
    monkeypatch.undo()
    assert resume(trained, "train.max_steps=9").steps == 9


@pytest.mark.parametrize("schedule", ["schedule", "table_schedule"])
def test_a_resume_that_cannot_work_is_refused_and_the_run_stays_as_it_was(
    prepared, tmp_path, schedule, wording
):
    fit(prepared, tmp_path / "run", f"train.{schedule}={{decay: linear}}")
    before = files_of(tmp_path / "run")
    with pytest.raises(InputError) as caught:
        find_run(tmp_path / "run", ())
    assert f"train.{schedule}.decay" in caught.value.hint
    for override in ("train.max_steps=9", "train.max_steps=2", "train.seed=1", "model.hidden=[8]"):
        wording.refused(SpecError, partial(resume, tmp_path / "run", *PATIENT, override))
    assert files_of(tmp_path / "run") == before


def test_a_hint_names_a_folder_as_a_shell_reads_it(tmp_path):
    words = shlex.split(how_to_resume(tmp_path / "my runs" / "a", None, 3))
    assert words[-2:] == ["--resume", str(tmp_path / "my runs" / "a")]


@pytest.mark.slow
@pytest.mark.parametrize("refit", [True, False])
def test_a_run_with_weights_in_a_folder_with_blanks_can_be_continued(prepared, tmp_path, refit):
    folder = tmp_path / "my runs" / "a"
    fit(prepared, folder, "train.refit=true" if refit else "train.schedule={decay: linear}")
    with pytest.raises(InputError) as caught:
        find_run(folder, ())
    assert f"train.init_from={folder}." in shlex.split(caught.value.hint)
