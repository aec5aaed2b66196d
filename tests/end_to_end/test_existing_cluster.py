"""A Dask cluster that others started: `dask scheduler` and `dask worker` as people run them."""

import json
from pathlib import Path

import pytest
from dask_world import DaskWorld
from small_jobs import run_distrain

from distrain.scheduler.plugin import PLUGIN_NAME
from distrain.workers.open_cluster import connect


@pytest.mark.slow
@pytest.mark.parametrize(
    "preload",
    [pytest.param(False, id="bare", marks=pytest.mark.release), pytest.param(True, id="preload")],
)
def test_train_on_a_scheduler_with_and_without_the_preload(
    job_file: Path, tmp_path: Path, preload: bool
) -> None:
    with DaskWorld(tmp_path, 2, preload=preload) as world:
        address = world.address
        with connect(address) as client:
            client.wait_for_workers(2, timeout=120)
            plugins = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
            assert (PLUGIN_NAME in plugins) == preload
        losses = []
        # With the preload, the first finds a coordinator; else the second finds that of the first.
        names = ["first"] if preload else ["first", "second"]
        for name in names:
            done = run_distrain(
                "train", job_file, "--scheduler", address, "--run-dir", tmp_path / name
            )
            assert done.returncode == 0, done.stdout + done.stderr
            losses.append(json.loads((tmp_path / name / "summary.json").read_text())["log_loss"])
            assert (tmp_path / name / "curves.png").is_file()
            for rank in (0, 1):
                assert (tmp_path / name / "logs" / "attempt-1" / f"rank-{rank}.log").exists()
        assert losses == losses[:1] * len(names)
        top = run_distrain("top", "--scheduler", address, "--once")
        jobs = top.stdout.partition("\nJOB")[2].splitlines()[1:]
        assert len(jobs) == len(names), top.stdout + top.stderr
        assert all("succeeded" in line and "20 of 20" in line for line in jobs), jobs
        doctor = run_distrain("doctor", "--scheduler", address, "--json")
        assert json.loads(doctor.stdout)["mistakes"] == 0


@pytest.mark.slow
def test_no_scheduler_there_is_told_at_once(job_file: Path, tmp_path: Path) -> None:
    done = run_distrain(
        "train", job_file, "--scheduler", "tcp://127.0.0.1:9", "--run-dir", tmp_path / "run"
    )
    assert done.returncode == 69
    assert "Traceback" not in done.stderr
