"""Jobs that go on without the command that submitted them, on a real cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_world import DaskWorld, TrainCommand, records
from distributed import Client
from small_jobs import run_distrain, small_document
from waiting import until
from yaml import safe_dump

from distrain.cli.interrupts import INTERRUPTED
from distrain.launch.scheduler_api import scheduler_api
from distrain.workers.open_cluster import connect

pytestmark = pytest.mark.slow
ENDLESS = ("--set", "train.max_steps=1000000", "--set", "train.epochs=1000000")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskWorld]:
    with DaskWorld(tmp_path_factory.mktemp("world"), 2) as world:
        yield world


@pytest.fixture(scope="module")
def client(world: DaskWorld) -> Iterator[Client]:
    with connect(world.address) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def submit(prepared: Path, world: DaskWorld, run: Path, *more: str) -> str:
    run.parent.mkdir(exist_ok=True)
    job = run.parent / "job.yaml"
    job.write_text(safe_dump(small_document(prepared)))
    at = ("--scheduler", world.address)
    done = run_distrain("train", job, "--detach", "--json", "--run-dir", run, *at, *more)
    assert done.returncode == 0, done.stderr
    job_id: str = json.loads(done.stdout)["job_id"]
    return job_id


def state(client: Client, job_id: str) -> str:
    return next(job.state for job in scheduler_api(client).jobs() if job.id == job_id)


def test_viewers_come_and_go_and_the_job_goes_on_until_somebody_cancels_it(
    prepared: Path, world: DaskWorld, client: Client, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job_id = submit(prepared, world, run, *ENDLESS)
    words = (job_id, "--scheduler", world.address)

    def viewer(name: str) -> TrainCommand:
        return TrainCommand(*words, log=tmp_path / f"{name}.log", command="attach")

    viewers = [first := viewer("first")]
    try:
        until(lambda: records(run), "records are written")
        viewers.append(second := viewer("second"))
        until(lambda: "\nstep " in second.log.read_text(), "the second sees steps")
        first.interrupt()
        assert first.wait() == INTERRUPTED
        assert f"job {job_id} continues without this command" in first.log.read_text()
        assert state(client, job_id) == "running"
        before = len(records(run))
        viewers.append(third := viewer("third"))
        until(lambda: len(records(run)) > before, "records go on")
        assert run_distrain("cancel", *words).returncode == 0
        assert third.wait() == second.wait() == 103
    finally:
        for one in viewers:
            one.kill()
    steps = [record["step"] for record in records(run) if record["split"] == "train"]
    assert steps == list(range(5, 5 * len(steps) + 1, 5))
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["steps"]) == ("cancelled", steps[-1])
    assert (run / "curves.png").is_file()
    assert "distrain cancel" in summary["message"]
