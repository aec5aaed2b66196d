"""Disks that are full or read-only, and paths that cannot be: nothing half-written is left."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged import assert_nothing_left, assert_one_screen, changed, tell
from kept_runs import all_lines
from small_jobs import distrain_command, run_distrain

from distrain.prep.synthetic.generate import SynthRequest, generate

pytestmark = pytest.mark.usefixtures("undrawn")

FULL = "No space left on device"


def leave_room(disk: Path, size_bytes: int, ballast: str = "ballast") -> None:
    """Fill a disk but for so many bytes, with a new file."""
    free = os.statvfs(disk)
    (disk / ballast).write_bytes(bytes(free.f_bavail * free.f_frsize - size_bytes))


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good raw text, more than the tiny disk takes."""
    folder = tmp_path_factory.mktemp("synth") / "raw"
    generate(SynthRequest(folder, rows=10_000, scale=0.001))
    return folder / "train-00000.tsv"


@pytest.mark.usefixtures("cluster_here")
@pytest.mark.parametrize("room", [1 << 20, 8192, 0])
def test_prep_on_a_full_disk(
    tiny_disk: Path, raw: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    if room < 1 << 20:
        leave_room(tiny_disk, room)
    out = tiny_disk / "out"
    done = tell(capsys, "prep", raw, "--out", out)
    assert_one_screen(done, 1, FULL, out if room else tiny_disk)
    assert_nothing_left(out)
    assert {path.name for path in tiny_disk.iterdir()} <= {"ballast"}


@pytest.mark.usefixtures("cluster_here")
@pytest.mark.parametrize("room", [8192, 0])
def test_predict_on_a_full_disk(
    tiny_disk: Path, prepared: Path, model: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    leave_room(tiny_disk, room)
    out = tiny_disk / "out"
    columns = [word for name in ("I1", "I2", "I3", "I4", "I5") for word in ("--keep", name)]
    done = tell(capsys, "predict", model, prepared / "train", "--out", out, *columns)
    assert_one_screen(done, 1, FULL, out)
    assert_nothing_left(out)


STEPS = ("--set", "train.epochs=20", "--set", "train.log_every_steps=1")
BIG_MODEL = ("--set", "model.hidden=[600, 600]")


@pytest.mark.parametrize(
    ("room", "options"), [(0, STEPS), (8192, STEPS), (16384, STEPS), (1 << 20, BIG_MODEL)]
)
def test_a_run_on_a_full_disk(
    tiny_disk: Path, job: Path, capsys: pytest.CaptureFixture[str], room: int,
    options: tuple[str, ...],
) -> None:  # fmt: skip
    """Wherever the space ends, there is an error, and every file that is there is whole."""
    if room < 1 << 20:
        leave_room(tiny_disk, room)
    run = tiny_disk / "run"
    done = tell(capsys, "train", job, "--run-dir", run, *options)
    assert done.exit_code == 100 or (done.exit_code == 1 and options is STEPS)
    assert_one_screen(done, done.exit_code, FULL, run)
    assert_nothing_left(run / "model")
    summary = run / "summary.json"
    for line in all_lines(run):
        json.loads(line)
    assert options is STEPS or summary.exists()
    assert not summary.exists() or json.loads(summary.read_text())["state"] == "failed"


def test_a_full_disk_does_not_hide_why_the_job_failed(
    tiny_disk: Path,
    prepared: Path,
    job: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed("label", 0.5)(prepared / "train" / "part-0.parquet")
    # What the end of a job makes space for, others take.
    full = lambda _: leave_room(tiny_disk, 0, "more")  # noqa: E731
    monkeypatch.setattr("distrain.launch.run._release_place", full)
    done = tell(capsys, "train", job, "--run-dir", tiny_disk / "run")
    assert_one_screen(done, 100, "'label' is 0.5", "reason: DataError")
    assert f"{FULL}\n  path: {tiny_disk / 'run' / 'summary.json'}" in done.stdout


Words = Callable[[Path, Path, Path], tuple[object, ...]]
WRITERS: dict[str, Words] = {
    "synth": lambda prepared, model, out: ("synth", "--rows", 10, "--out", out),
    "prep": lambda prepared, model, out: ("prep", prepared / "train", "--out", out),
    "train": lambda prepared, model, out: (
        "train", prepared.parent / "job.yaml", "--run-dir", out
    ),
    "predict": lambda prepared, model, out: (
        "predict", model, prepared / "train", "--out", out
    ),
    "schema": lambda prepared, model, out: ("schema", "criteo", "--out", out / "s.json"),
    "init": lambda prepared, model, out: (
        "init", "criteo-mlp", "--data", prepared, "--out", out / "job.yaml"
    ),
}  # fmt: skip


@pytest.mark.usefixtures("cluster_here", "job")
@pytest.mark.parametrize("command", WRITERS)
def test_a_read_only_filesystem(
    prepared: Path, model: Path, read_only_disk: Path, capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:  # fmt: skip
    done = tell(capsys, *WRITERS[command](prepared, model, read_only_disk / "out"))
    assert_one_screen(done, 1, "Read-only file system", read_only_disk, "choose another place")
    assert list(read_only_disk.iterdir()) == []


def test_the_command_itself() -> None:
    words = ("schema", "criteo", "--out", "/dev/null/schema.json")
    assert_one_screen(run_distrain(*words), 1, "could not write", "/dev/null")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk() -> None:
    command = distrain_command("schema", "criteo", "--json")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert_one_screen(done, 1, "could not write the output", FULL)
