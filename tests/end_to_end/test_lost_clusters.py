"""Workers that are told to go, and schedulers that vanish."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from dask_world import DaskWorld
from small_jobs import distrain_command, make_spec, run_distrain, small_document
from waiting import until
from yaml import safe_dump

from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import JobSpec
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle
from distrain.launch.scheduler_api import scheduler_api
from distrain.runs.attempts import read_records
from distrain.runs.finish_run import finish_run
from distrain.runs.open_run import open_run
from distrain.workers.open_cluster import connect

LONG = (
    "train.epochs=1000",
    "train.max_steps=1500",
    "train.log_every_steps=10",
    "evaluate.at_end=false",
    "restart.backoff_s=0",
)


def run_until_lost(world: DaskWorld, spec: JobSpec, root: Path, until_step: int) -> None:
    """Run a job until there is a checkpoint of that step; then its scheduler is killed."""
    killed: list[int] = []

    def kill_scheduler(view: JobView) -> None:
        if not killed and (view.checkpoints.step or 0) >= until_step:
            killed.extend(pid for pid in view.pids if pid)
            world.kill_scheduler()  # and no rank may outlive it

    with connect(world.address) as client, open_run(root, spec, "job"):
        client.wait_for_workers(2, timeout=60)
        job = JobHandle(client, "job")
        job.submit(spec, root)
        view = job.watch(kill_scheduler, lost_after_s=1.0)
        finish_run(RunPaths(root), view, 1)
    assert len(killed) == 2
    assert (view.state, view.reason) == (JobState.FAILED, "CoordinatorLost")
    assert view.message


def check_history(root: Path, steps: int, every: int, resumed_from: int = 0) -> None:
    """Check that each step is recorded once, and each row.

    A scheduler that died may have taken the last report before `resumed_from` with it.
    """
    train = [record for record in read_records(RunPaths(root)) if record.split == "train"]
    told, wanted = [record.step for record in train], [*range(every, steps + 1, every)]
    lacking = [step for step in wanted if step not in told]
    assert told == [step for step in wanted if step not in lacking]
    assert lacking in ([], [resumed_from // every * every])
    rows = [record.rows for record in train]
    assert train[-1].rows_total == sum(rows) + len(lacking) * rows[0]


@pytest.mark.slow
def test_a_killed_scheduler_leaves_no_ranks_and_the_run_goes_on_elsewhere(
    prepared: Path, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    spec = make_spec(prepared, *LONG, "checkpoint.every_steps=25")
    with DaskWorld(tmp_path, 2) as world:
        run_until_lost(world, spec, root, until_step=50)
    done = run_distrain("train", "--resume", root, "--set", "train.max_steps=400")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"attempt 2 trains on 2 ranks from step (\d+)", done.stdout)
    assert found
    check_history(root, 400, 10, int(found[1]))
    summary = json.loads((root / "summary.json").read_text())
    assert (summary["state"], summary["attempts"]) == ("succeeded", 2)
    assert [end["reason"] for end in summary["restarts"]] == ["CoordinatorLost"]
    again = run_distrain("train", "--resume", root)
    assert again.returncode == 1
    assert "the run has succeeded" in again.stderr


@pytest.mark.slow
def test_a_job_whose_workers_are_all_gone_has_its_summary_when_one_comes(
    prepared: Path, tmp_path: Path
) -> None:
    spec, paths = make_spec(prepared, *LONG), RunPaths(tmp_path / "run")
    with DaskWorld(tmp_path, 2) as world, connect(world.address) as client:
        client.wait_for_workers(2, timeout=60)
        job = JobHandle(client, "job")
        job.submit(spec, paths.root)
        until(lambda: len(read_records(paths)) > 3, "records")
        workers = world.workers()
        for nanny in world.nannies:
            nanny.kill()
        for worker in workers:
            worker.kill()
        for nanny in world.nannies:
            nanny.wait()
        until(lambda: job.status().state.waits, "they are missed")
        job.cancel("enough")
        view = job.watch(lambda _: None)
        assert (view.state, view.recorded) == (JobState.CANCELLED, False)
        assert view.record_error
        assert [one.state for one in scheduler_api(client).jobs()] == ["cancelled"]
        assert not paths.summary.exists()
        world.nannies = [world.start_worker("late")]
        until(lambda: job.status().recorded, "its summary")
    summary = json.loads(paths.summary.read_text())
    assert (summary["state"], summary["reason"]) == ("cancelled", "Cancelled")
    assert summary["steps"] == read_records(paths)[-1].step


@pytest.mark.release
@pytest.mark.slow
def test_a_command_that_was_killed_finds_its_job_again(prepared: Path, tmp_path: Path) -> None:
    """The job goes on without it; `--resume` watches it and makes the records whole."""
    job, root = tmp_path / "job.yaml", tmp_path / "run"
    job.write_text(safe_dump(small_document(prepared)))
    with DaskWorld(tmp_path, 2) as world:
        overrides = settings(*LONG, "train.max_steps=4000")
        command = distrain_command("train", job, *overrides, "--run-dir", root)
        with subprocess.Popen(
            [*command, "--scheduler", world.address], stdout=subprocess.DEVNULL
        ) as running:
            until(lambda: running.poll() is not None or read_records(RunPaths(root)))
            assert running.poll() is None
            running.kill()
        done = run_distrain("train", "--resume", root, "--scheduler", world.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the scheduler has the job already" in done.stdout
    check_history(root, 4000, 10)
    assert json.loads((root / "summary.json").read_text())["attempts"] == 1
    assert RunPaths(root).attempts() == (1,)


def settings(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]
