"""Whole runs and their checkpoints' place: whose it is, where it is, and that it can be written."""

import errno
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from other_user import unprivileged
from safetensors.torch import load_file
from small_jobs import make_spec, write_prepared

from distrain.checkpoint import CheckpointDir, checkpoint_write
from distrain.errors import InputError, JobError, SpecError
from distrain.running import LoggedProgress, RunRequest, train
from distrain.running.resuming import find_run
from distrain.spec import load_spec

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = (
    "resources={backend: inline, num_ranks: 1, device: cpu}",
    "train.log_every_steps=5",
    "checkpoint.every_steps=10",
    "checkpoint.every_s=null",
)
OLD_RUNS = Path(__file__).parents[1] / "train" / "old_run" / "runs.tar.xz"


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
    with pytest.raises(SpecError, match=f"--resume {tmp_path / 'first'}"):
        run_job(prepared, tmp_path / "second", place)
    assert not (tmp_path / "second").exists(), "refused before anything is begun"
    assert sorted((tmp_path / "states").rglob("*")) == before
    named = f"checkpoint.dir={tmp_path / 'states'}/{{run_id}}"
    assert run_job(prepared, tmp_path / "third", named).checkpoints["count"] == 2
    assert len(CheckpointDir(str(tmp_path / "states" / "third")).list()) == 2


def test_the_rank_refuses_what_the_command_cannot_see(prepared, tmp_path, blind_command):
    place = f"checkpoint.dir={tmp_path / 'states'}"
    run_job(prepared, tmp_path / "first", place)
    with pytest.raises(JobError, match="belongs to the run first") as caught:
        run_job(prepared, tmp_path / "second", place)
    assert caught.value.where["reason"] == "InvalidSpec", "no restart would mend it"
    assert f"--resume {tmp_path / 'first'}" in str(caught.value)
    assert not (tmp_path / "second" / "metrics.jsonl").exists()


def test_a_job_that_failed_before_its_first_checkpoint_leaves_the_place_to_others(
    prepared, tmp_path
):
    place = f"checkpoint.dir={tmp_path / 'states'}"
    with pytest.raises(JobError, match="the loss became"):
        run_job(prepared, tmp_path / "first", place, "train.optimizer={kind: sgd, lr: 1.0e+30}")
    assert run_job(prepared, tmp_path / "second", place).checkpoints["count"] == 2


def test_a_resume_finds_a_relative_place_from_anywhere(prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_job(prepared, Path("run"), "checkpoint.dir=states", "train.max_steps=10")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    assert spec.checkpoint.dir == str(tmp_path / "states")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    summary, resumed = resume(tmp_path / "run", "train.max_steps=20")
    assert (resumed.step, summary.steps) == (10, 20)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_home_is_that_of_whoever_submits(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data").symlink_to(prepared)
    monkeypatch.chdir(tmp_path / "work")
    places = ("checkpoint.dir=~/states", "data.train=~/data/train", "data.valid=~/data/valid")
    run_job(prepared, Path("~/run"), *places, job_id="a")
    assert list((tmp_path / "work").iterdir()) == []
    assert len(CheckpointDir(str(tmp_path / "home" / "states")).list()) == 2
    assert (tmp_path / "home" / "run" / "summary.json").exists()
    with pytest.raises(SpecError, match=r"checkpoint\.dir: '~no-such-user/x' begins with the home"):
        run_job(prepared, Path("other"), "checkpoint.dir=~no-such-user/x")


def test_a_resume_that_finds_none_of_its_checkpoints_does_not_begin_anew(prepared, tmp_path):
    run_job(prepared, tmp_path / "run", "train.max_steps=10")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(InputError, match="the run wrote 1 checkpoints, and none") as caught:
        resume(tmp_path / "run", "train.max_steps=20")
    text = str(caught.value)
    assert f"looked in: {tmp_path / 'run' / 'checkpoints'}" in text
    assert "step-0000000010-a1" in text
    assert "--without-checkpoint" in text
    summary, resumed = resume(tmp_path / "run", "train.max_steps=20", without_checkpoint=True)
    assert (resumed.newest, summary.steps, summary.rows) == (None, 20, 4000)


@pytest.fixture
def blind_command(monkeypatch):
    """A command on a machine that does not have the workers' folders."""
    for name in ("_check_owner", "_check_checkpoint_dir"):
        monkeypatch.setattr(f"distrain.running.checks.{name}", lambda *arguments: [])


def test_a_place_that_cannot_be_written_stops_the_job_before_its_first_step(
    prepared, tmp_path, blind_command
):
    (tmp_path / "file").write_text("x")
    with pytest.raises(JobError, match=r"cannot be written: .*Not a directory") as e:
        run_job(prepared, tmp_path / "run", f"checkpoint.dir={tmp_path / 'file' / 'states'}")
    assert e.value.where["reason"] == "OutputError"
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 0


def test_a_place_without_permission_stops_it_too(blind_command):
    with unprivileged() as folder:
        data, states = write_prepared(folder / "data"), folder / "states"
        states.mkdir(mode=0o500)
        with pytest.raises(JobError, match=r"cannot be written: .*Permission denied"):
            run_job(data, folder / "run", f"checkpoint.dir={states}")
        assert not (folder / "run" / "metrics.jsonl").exists()


def test_what_fails_later_is_counted_and_told_at_the_end(prepared, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_write, "write_shard", full)
    told = Told()
    summary = run_job(prepared, tmp_path / "run", progress=told)
    assert (summary.state, summary.steps) == ("succeeded", 20)
    assert (summary.checkpoints["count"], summary.checkpoints["failed"]) == (0, 2)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["checkpoints"]["failed"] == 2
    assert [line for line in told.lines if "checkpoints: 0 written, 2 failed" in line]


def test_a_run_that_ends_badly_tells_of_them_too(prepared, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_write, "write_shard", full)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").mkdir()
    with pytest.raises(JobError, match="checkpoints: 0 written, 2 failed"):
        run_job(prepared, tmp_path / "run")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """What an older version left, moved from where it ran; the current folder is another."""
    with tarfile.open(OLD_RUNS) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "old"


def data_of(old):
    return (f"data.train={old}/data/part-0.parquet", f"data.schema={old}/data/schema.pbtxt")


def test_an_old_run_goes_on_as_its_own_version_would(old):
    summary, resumed = resume(old / "in-default", "train.max_steps=8", *data_of(old))
    assert (resumed.step, resumed.first_attempt, summary.steps) == (4, 2, 8)
    assert summary.rows == 8 * 12
    place = CheckpointDir(str(old / "in-default" / "checkpoints"), "old-in-default")
    assert [(entry.step, entry.run) for entry in place.list()] == [
        (8, "old-in-default"),
        (6, "old-in-default"),
    ]
    assert summary.train_loss == pytest.approx(0.7046069729836936)
    weights = load_file(old / "in-default" / "model" / "weights.safetensors")
    norms = {name: float(values.double().norm()) for name, values in weights.items()}
    assert norms == pytest.approx(OLD_NORMS, abs=1e-6)


# Of the weights after 8 steps that nobody interrupted, by the version that wrote the old runs;
# their loss was that above. Today's tables begin with other values, so it cannot be asked again.
OLD_NORMS = {
    "dense.body.layers.0.bias": 0.1935471,
    "dense.body.layers.0.weight": 0.9712401,
    "dense.task.logit.bias": 0.4106371,
    "dense.task.logit.weight": 0.444761,
    "embeddings.weights.0": 1.0914469,
}


def test_an_old_relative_place_is_not_silently_another(old, monkeypatch):
    with pytest.raises(InputError, match="the run wrote 2 checkpoints, and none") as caught:
        resume(old / "in-relative", "train.max_steps=8", *data_of(old))
    assert "repeat this in the directory in which the run was started" in str(caught.value)
    monkeypatch.chdir(old)
    summary, resumed = resume(old / "in-relative", "train.max_steps=8")
    assert (resumed.step, summary.steps) == (4, 8)


def test_an_old_relative_place_is_where_the_run_says_that_it_was(old):
    """Under Dask the last checkpoint's path was absolute, though the spec's was not."""
    file = old / "in-relative" / "summary.json"
    summary = json.loads(file.read_text())
    summary["checkpoints"]["path"] = str(old / summary["checkpoints"]["path"])
    file.write_text(json.dumps(summary))
    _, resumed = resume(old / "in-relative", "train.max_steps=8", *data_of(old))
    assert resumed.step == 4


def test_a_new_run_does_not_take_over_what_an_old_one_left(old, tmp_path):
    spec = load_spec(
        old / "in-default" / "spec.yaml",
        [*data_of(old), "checkpoint.dir=null", "train.max_steps=8"],
    )
    place = spec.checkpoint.model_copy(update={"dir": str(old / "states")})
    run = RunRequest(spec, tmp_path / "new", "new")
    with pytest.raises(SpecError, match="written by an older version"):
        train(replace(run, spec=spec.model_copy(update={"checkpoint": place})), LoggedProgress())
