"""Gangs of real processes that shrink, grow, make space and hang."""

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask_world import DaskWorld, TrainCommand, records
from small_jobs import run_distrain, small_document
from waiting import until
from yaml import safe_dump

pytestmark = [pytest.mark.release, pytest.mark.timeout(600)]


def write_job(prepared: Path, path: Path, max_steps: int, **sections: Any) -> Path:
    document = small_document(prepared)
    document["train"] |= {
        "max_steps": max_steps,
        "epochs": 1000,
        "log_every_steps": 20,
        "optimizer": {"kind": "adam", "lr": 0.002},
        "audit": True,
    }
    document |= {
        "checkpoint": {"every_steps": 100, "every_s": 1.0},
        "restart": {"backoff_s": 0.1},
        **sections,
    }
    path.write_text(safe_dump(document))
    return path


def check_audit(run_dir: Path) -> None:
    audit = run_distrain("audit", run_dir)
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_a_job_shrinks_when_a_worker_goes_and_grows_when_one_comes(
    prepared: Path, tmp_path: Path
) -> None:
    resources = {"num_ranks": 2, "min_ranks": 1, "device": "cpu"}
    spec = write_job(prepared, tmp_path / "job.yaml", 4_000, resources=resources)
    run_dir, log = tmp_path / "run", tmp_path / "log"
    with DaskWorld(tmp_path, 2) as world:
        command = TrainCommand(spec, "--scheduler", world.address, "--run-dir", run_dir, log=log)
        try:
            until(lambda: records(run_dir), "some steps", 180)
            world.nannies[1].kill()  # its worker ends with it
            world.nannies.pop(1).wait()
            until(lambda: "trains on 1 rank" in log.read_text(), "fewer ranks", 180)
            world.nannies.append(world.start_worker("w2"))
            until(lambda: "trains on 2 ranks from" in log.read_text(), "more ranks")
            command.interrupt()
            assert command.wait() == 103, log.read_text()
        finally:
            command.kill()
    summary = json.loads((run_dir / "summary.json").read_text())
    assert [r["reason"] for r in summary["restarts"]] == ["WorkerLost", "Resized"]
    check_audit(run_dir)


def test_a_stopped_rank_is_found_named_and_replaced(prepared: Path, tmp_path: Path) -> None:
    spec = write_job(prepared, tmp_path / "job.yaml", 1_500, deadlines={"progress_s": 4.0})
    run_dir, log = tmp_path / "run", tmp_path / "log"
    with DaskWorld(tmp_path, 2) as world:
        command = TrainCommand(spec, "--scheduler", world.address, "--run-dir", run_dir, log=log)
        try:
            until(lambda: records(run_dir), "some steps", 180)
            victim = world.ranks()[1]
            victim.send_signal(signal.SIGSTOP)
            until(lambda: not psutil.pid_exists(victim.pid), "its end")
            assert command.wait(120) == 0, log.read_text()
        finally:
            command.kill()
    summary = json.loads((run_dir / "summary.json").read_text())
    (restart,) = summary["restarts"]
    assert restart["reason"] == "CollectiveTimeout"
    assert f"(pid {victim.pid} on" in restart["message"]
    assert "its process is T (stopped)" in restart["message"]
    check_audit(run_dir)
