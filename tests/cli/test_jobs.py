"""Jobs from outside: list, status, cancel, detach, attach; on a scheduler without workers."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner, Result
from dask_world import DaskWorld
from rich.console import Console
from small_jobs import small_document, write_prepared

from distrain.cli.jobs.list import JobsTable
from distrain.cli.jobs.status_lines import job_lines
from distrain.cli.main import cli
from distrain.cli.options import SCHEDULER_VARIABLE
from distrain.cli.outcome import how_to_follow
from distrain.client.errors import NotFound
from distrain.errors import INTERRUPTED, ClusterError, JobCancelled, OutputError
from distrain.jobs.api_answers import Job, utc
from distrain.jobs.job_view import Checkpoints, JobView, Restart
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import load_spec
from distrain.launch.job_handle import JobHandle
from distrain.runs.open_run import open_run
from distrain.runs.run_file import read_summary


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskWorld]:
    with DaskWorld(tmp_path_factory.mktemp("world"), 0) as world:
        yield world


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    document = {**small_document(write_prepared(folder / "data")), "tags": {"team": "ads"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(document))
    return folder / "job.yaml"


def run(*words: object, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], env=environment)


def detached(job_file: Path, world: DaskWorld, run_dir: Path, name: str) -> str:
    """The id of a job that was submitted and left alone."""
    words = ["train", job_file, "--detach", "--scheduler", world.address, "--run-dir", run_dir]
    done = run(*words, "--set", f"name={name}", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["run_dir"] == str(run_dir)
    job_id: str = document["job_id"]
    assert f"distrain attach {job_id} --scheduler {world.address}" in done.stderr
    assert "needs 2 workers" in done.stderr, "there are none, so the job waits"
    return job_id


def test_a_detached_job_is_listed_looked_at_and_cancelled(
    world: DaskWorld, job_file: Path, tmp_path: Path
) -> None:
    at = {SCHEDULER_VARIABLE: world.address}
    job_id = detached(job_file, world, tmp_path / "run", "listed")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["job_id"] == job_id

    document = json.loads(run("jobs", "--json", environment=at).stdout)
    assert document["version"] == 1
    (job,) = [job for job in document["jobs"] if job["job_id"] == job_id]
    assert job["state"] == "pending"
    assert "2 workers" in job["why_pending"]
    assert job["run_dir"] == str(tmp_path / "run")
    assert job["tags"] == {"team": "ads"}
    table = run("jobs", "--state", "pending", environment=at).stdout
    assert job_id in table
    assert job["why_pending"] in table
    assert run("jobs", "--state", "running", environment=at).stdout == "no such jobs\n"

    unknown = run("status", f"x{job_id}", environment=at).exception
    assert isinstance(unknown, NotFound)
    status = run("status", "listed", environment=at)  # an unambiguous beginning
    assert status.exit_code == 0
    assert f"state          pending: {job['why_pending']}" in status.stdout
    status = run("status", job_id, "--json", "--scheduler", world.address)
    assert json.loads(status.stdout)["job"]["run_dir"] == str(tmp_path / "run")

    cancelled = run("cancel", job_id, "--wait", "--json", environment=at)
    assert cancelled.exit_code == 0
    assert json.loads(cancelled.stdout) == {
        "version": 1, "job_id": job_id, "asked": True, "state": "cancelled",
    }  # fmt: skip
    again = run("cancel", job_id, environment=at)
    assert again.exit_code == 0
    assert again.stdout == f"job {job_id} has ended already: cancelled\n"
    status = run("status", job_id, "--json", environment=at)
    assert status.exit_code == 0  # it is a question
    job = json.loads(status.stdout)["job"]
    assert (job["state"], job["reason"]) == ("cancelled", "Cancelled")
    assert "distrain cancel" in job["message"]


def test_cancel_says_how_to_go_on_from_the_checkpoint_that_the_ranks_saved(
    world: DaskWorld, job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = detached(job_file, world, tmp_path / "run", "saved")
    watch = JobHandle.watch

    def with_a_checkpoint(handle: JobHandle, on_view: Callable[[JobView], object]) -> JobView:
        return replace(watch(handle, on_view), checkpoints=Checkpoints(1, 40, "step-40"))

    monkeypatch.setattr(JobHandle, "watch", with_a_checkpoint)
    done = run("cancel", job_id, "--wait", "--scheduler", world.address)
    assert done.exit_code == 0
    resume = f"distrain train --resume {tmp_path / 'run'} --scheduler {world.address}"
    assert "step 40" in done.stdout
    assert resume in done.stdout


def test_a_job_that_ended_alone_has_its_summary_and_attach_shows_it(
    world: DaskWorld, job_file: Path, tmp_path: Path
) -> None:
    """The scheduler has no worker: the first that comes writes it, or whoever attaches."""
    job_id = detached(job_file, world, tmp_path / "run", "ended")
    paths = RunPaths(tmp_path / "run")
    assert run("cancel", job_id, "--scheduler", world.address).exit_code == 0
    for _ in range(2):
        done = run("attach", job_id, "--scheduler", world.address, "--json")
        assert isinstance(done.exception, JobCancelled)
        summary = json.loads(done.stdout)
        assert summary["state"] == "cancelled"
        assert summary["run_dir"] == str(paths.root)
        assert read_summary(paths) == {
            k: v for k, v in summary.items() if k not in ("version", "run_dir")
        }


def test_ctrl_c_leaves_a_job_to_its_scheduler(
    world: DaskWorld, job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = detached(job_file, world, tmp_path / "run", "left")
    with monkeypatch.context() as patch:
        patch.setattr(JobHandle, "watch", Mock(side_effect=KeyboardInterrupt))
        done = run("attach", job_id, "--scheduler", world.address)
    assert done.exit_code == INTERRUPTED
    assert f"job {job_id} continues without this command" in done.stderr
    status = run("status", job_id, "--json", "--scheduler", world.address)
    assert json.loads(status.stdout)["job"]["state"] == "pending"


def test_attach_leaves_folders_of_others_alone(
    world: DaskWorld, job_file: Path, tmp_path: Path
) -> None:
    job_id = detached(job_file, world, tmp_path / "run", "watched")
    assert run("cancel", job_id, "--scheduler", world.address).exit_code == 0
    words = ["attach", job_id, "--scheduler", world.address]
    done = run(*words, "--run-dir", tmp_path / "elsewhere")
    assert isinstance(done.exception, JobCancelled)
    assert not (tmp_path / "elsewhere").exists()
    with open_run(tmp_path / "other", load_spec(job_file), "other-job"):
        pass
    done = run(*words, "--run-dir", tmp_path / "other")
    assert isinstance(done.exception, OutputError)
    assert done.exception.where["path"] == str(tmp_path / "other")


def test_what_cannot_be_detached_is_refused_before_anything_is_made(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", job_file, "--detach", "--run-dir", tmp_path / "run"]
    at = ["--scheduler", "tcp://x:1"]
    inline, sink = ["--set", "resources={backend: inline}"], ["--sink", "tensorboard"]
    for more in ([], [*at, *inline], [*at, *sink]):
        assert run(*words, *more).exit_code == 2, more

    def unreachable(address: str) -> None:
        raise ClusterError(f"cannot reach {address}")

    monkeypatch.setattr("distrain.workers.open_cluster.connect", unreachable)
    done = run(*words, "--scheduler", "tcp://127.0.0.1:9")
    assert isinstance(done.exception, ClusterError)
    assert not (tmp_path / "run" / "run.json").exists()


# --- what is pure


def drawn(jobs: Sequence[Job], width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(JobsTable(jobs))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_people_see_a_row_a_job_and_all_that_is_known_of_one(
    wording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "deep-and-cross-with-a-long-name-20260301-123000-ab12"
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    now_s = 1_800_000_000.0
    running = Job(
        id=long, name="deep", state="running", attempt=2, num_ranks=8, step=40, num_steps=100,
        created_at=utc(now_s - 3700), run_dir="/r/a", rows_per_s=1234.5, loss=0.3, auc=0.9,
        valid_loss=0.7, valid_auc=0.61,
    )  # fmt: skip
    jobs = [
        running,
        Job(
            id="b",
            name="b",
            state="pending",
            num_ranks=4,
            created_at=utc(now_s - 90_000),
            why_pending="4 workers wanted, 1 free",
        ),
        Job(id="c", name="c", state="failed", attempt=1, num_ranks=2, reason="RankDied", step=3),
    ]
    wording("\n".join(drawn(jobs, 200)))
    narrow = drawn(jobs, 80)
    assert max(map(len, narrow)) <= 80
    assert narrow[1].split()[:6] == ["deep", "ab12", "running", "40", "of", "100"]
    assert narrow[3] == "    4 workers wanted, 1 free", "the reason is below its row"
    assert all("ab12" in drawn(jobs, width)[1] for width in range(25, 130))
    failed = Job.read(
        {
            "id": "a-1", "name": "a", "state": "failed", "attempt": 2, "num_ranks": 2, "step": 45,
            "created_at": "2026-03-01T12:00:00Z", "reason": "RankDied", "run_dir": "/r/a",
            "message": "rank 1 was killed\nits last output: none", "restarts": 1, "checkpoints": 3,
            "last_checkpoint": {"step": 40, "path": "/r/a/checkpoints/40"},
            "setbacks": [
                vars(Restart(1, "WorkerLost", "worker w1 left\nmore", 20, 12.0)),
            ],
        }
    )  # fmt: skip
    wording("\n".join(job_lines(failed)))
    partial = Job.read({"id": "a-1", "state": "running", "last_restart": {"attempt": 1}})
    assert not [line for line in job_lines(partial) if line.startswith("restart")]
    for environment in ({}, {SCHEDULER_VARIABLE: "tcp://x:1"}, {SCHEDULER_VARIABLE: "tcp://y:1"}):
        told = how_to_follow("a", "tcp://x:1", environment)
        named = environment.get(SCHEDULER_VARIABLE) != "tcp://x:1"
        assert ("--scheduler tcp://x:1" in told) == named
