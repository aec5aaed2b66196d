"""Ranks that die, losses that explode, jobs that do not fit: named, and nothing left behind."""

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from damaged import tell
from distributed import Client
from small_jobs import distrain_command, make_spec

from distrain.jobs.run_paths import RunPaths, new_job_id
from distrain.jobs.spec import JobSpec
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle
from distrain.runs.attempts import read_records

# Long enough that only the failure can end it, and a failure ends it.
ENDLESS = (
    "train.max_steps=1000000",
    "train.epochs=1000000",
    "train.log_every_steps=5",
    "restart={max_rank_failures: 0, max_worker_losses: 0}",
)


def submit(client: Client, spec: JobSpec, run_dir: Path) -> JobHandle:
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, run_dir)
    return job


@pytest.mark.slow
def test_an_interrupt_cancels_the_job(job_file: Path, tmp_path: Path) -> None:
    """In a terminal, Ctrl-C reaches workers and ranks as well; the command decides all the same."""
    overrides = [word for assignment in ENDLESS for word in ("--set", assignment)]
    command = distrain_command("train", job_file, *overrides, "--run-dir", tmp_path / "run")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if re.search(r"step \d+", line):
                    break
            family = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=120)
        except BaseException:  # it would train on beside all other tests
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 103, output
    assert "Traceback" not in output
    steps = [record.step for record in read_records(RunPaths(tmp_path / "run"))]
    assert steps == sorted(set(steps))  # each record once
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


@pytest.mark.slow
def test_relative_paths_are_those_of_who_submits(
    cluster: Client, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared)
    spec = make_spec(Path(), "data.schema=schema.pbtxt", "train.max_steps=1")
    assert not any(Path(path).is_absolute() for path in (*spec.data.train, *spec.data.valid))
    view = submit(cluster, spec, tmp_path).watch(lambda _: None)
    assert view.state is JobState.SUCCEEDED, view.message


def test_an_inline_failure_ends_the_command(
    job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = tell(
        capsys, "train", job_file, "--run-dir", tmp_path / "run",
        "--set", "resources={backend: inline, num_ranks: 1}",
        "--set", "train.optimizer={kind: sgd, lr: 1.0e+30}",
    )  # fmt: skip
    assert done.exit_code == 100
    assert re.search(r"rank 0: the loss became (nan|inf) at step [2-5] on rank 0", done.stderr)
    assert "lr" in done.stderr
    assert not (tmp_path / "run" / "model").exists()
