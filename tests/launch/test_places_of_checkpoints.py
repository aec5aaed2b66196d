"""Whole runs and their checkpoints' place: whose it is, where it is, and that it can be written."""

import errno
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_jobs import make_spec

from distrain.errors import InputError, JobError, SpecError
from distrain.jobs.run_paths import RunPaths
from distrain.launch.reporting import LoggedProgress
from distrain.launch.resuming import find_run
from distrain.launch.run import RunRequest, train
from distrain.runs.attempts import read_records
from distrain.train.checkpoint import CheckpointDir, checkpoint_write

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = (
    "resources={backend: inline, num_ranks: 1, device: cpu}",
    "train.log_every_steps=5",
    "checkpoint.every_steps=10",
    "checkpoint.every_s=null",
)


class Told(LoggedProgress):
    """Keeps what was said."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def run_job(prepared, root, *overrides, job_id=None, progress=None):
    spec = make_spec(prepared, *INLINE, *overrides)
    return train(RunRequest(spec, root, job_id or root.name), progress or LoggedProgress())


def resume(root, *overrides, **options):
    job_id, spec, resumed = find_run(root, overrides, **options)
    summary = train(RunRequest(spec, root, job_id, resumed=resumed), LoggedProgress())
    return summary, resumed


def test_two_runs_do_not_share_a_place(prepared, tmp_path):
    place = f"checkpoint.dir={tmp_path / 'states'}"
    assert run_job(prepared, tmp_path / "first", place).steps == 20
    before = sorted((tmp_path / "states").rglob("*"))
    with pytest.raises(SpecError):
        run_job(prepared, tmp_path / "second", place)
    assert not (tmp_path / "second").exists(), "refused before anything is begun"
    assert sorted((tmp_path / "states").rglob("*")) == before
    named = f"checkpoint.dir={tmp_path / 'states'}/{{run_id}}"
    assert run_job(prepared, tmp_path / "third", named).checkpoints["count"] == 2
    assert len(CheckpointDir(str(tmp_path / "states" / "third")).list()) == 2


def test_home_is_that_of_whoever_submits(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data").symlink_to(prepared)
    monkeypatch.chdir(tmp_path / "work")
    places = ("checkpoint.dir=~/states", "data.train=~/data/train", "data.valid=~/data/valid")
    run_job(prepared, Path("~/run"), *places, job_id="a")
    monkeypatch.chdir(tmp_path / "home")  # a resume finds the place from anywhere
    summary, resumed = resume(tmp_path / "home" / "run", "train.max_steps=30")
    assert (resumed.step, summary.steps) == (20, 30)
    monkeypatch.chdir(tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []
    assert len(CheckpointDir(str(tmp_path / "home" / "states")).list()) == 3
    assert (tmp_path / "home" / "run" / "summary.json").exists()
    with pytest.raises(SpecError):
        run_job(prepared, Path("other"), "checkpoint.dir=~no-such-user/x")


def test_a_resume_without_its_checkpoints_does_not_start_over(prepared, tmp_path, wording):
    run_job(prepared, tmp_path / "run", "train.max_steps=10")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    wording.refused(InputError, lambda: resume(tmp_path / "run", "train.max_steps=20"))
    summary, resumed = resume(tmp_path / "run", "train.max_steps=20", without_checkpoint=True)
    assert (resumed.newest, summary.steps, summary.rows) == (None, 20, 4000)


@pytest.fixture
def blind_command(monkeypatch):
    """A command on a machine that does not have the workers' folders."""
    for name in ("_check_owner", "_check_checkpoint_dir"):
        monkeypatch.setattr(f"distrain.launch.job_checks.{name}", lambda *arguments: [])


def test_a_place_that_cannot_be_written_stops_the_job_before_its_first_step(
    prepared, tmp_path, blind_command
):
    (tmp_path / "file").write_text("x")
    with pytest.raises(JobError) as e:
        run_job(prepared, tmp_path / "run", f"checkpoint.dir={tmp_path / 'file' / 'states'}")
    assert e.value.where["reason"] == "OutputError"
    assert read_records(RunPaths(tmp_path / "run")) == []
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 0


def test_what_fails_later_is_counted_and_told_at_the_end(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(
        checkpoint_write,
        "write_shard",
        Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")),
    )
    told = Told()
    summary = run_job(prepared, tmp_path / "run", progress=told)
    assert (summary.state, summary.steps) == ("succeeded", 20)
    assert (summary.checkpoints["count"], summary.checkpoints["failed"]) == (0, 2)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["checkpoints"]["failed"] == 2
    assert [line for line in told.lines if "checkpoints: 0 written, 2 failed" in line]
