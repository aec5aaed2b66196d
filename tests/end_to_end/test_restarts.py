"""Jobs that go on although ranks, workers and schedulers are lost under them."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distributed import Client
from small_jobs import is_running, make_spec, saved_weights

from distrain.jobs.job_view import AttemptStarted, JobView, Record
from distrain.jobs.run_paths import RunPaths, new_job_id
from distrain.jobs.spec import JobSpec
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle
from distrain.runs.attempts import read_records
from distrain.runs.open_run import open_run

SOME_STEPS = (
    "train.epochs=20",
    "train.max_steps=600",
    "train.log_every_steps=7",
    "evaluate.every_steps=200",
    "checkpoint={every_steps: 20, keep: 2}",
    "restart.backoff_s=0",
)


def run_job(
    client: Client, spec: JobSpec, root: Path, on_view: Callable[[JobView], None] = lambda _: None
) -> JobView:
    job = JobHandle(client, new_job_id(spec.name))
    with open_run(root, spec, job.job_id):
        job.submit(spec, root)
        view = job.watch(on_view)
    assert view.recorded
    return view


class Shot:
    """Does something once, when a checkpoint after some step is there."""

    def __init__(self, step: int, action: Callable[[JobView], None]):
        self.step = step
        self.action = action
        self.views: list[JobView] = []

    def __call__(self, view: JobView) -> None:
        saved = view.checkpoints.step or 0
        runs = view.state is JobState.RUNNING and all(view.pids)
        if runs and saved >= self.step and not self.views:
            self.views.append(view)
            self.action(view)


def kill_rank(number: int) -> Callable[[JobView], None]:
    def kill(view: JobView) -> None:
        pid = view.pids[number]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    return kill


def scores(records: list[Record]) -> list[tuple[object, ...]]:
    """What of records must be the same whenever they were made, however often it took."""
    return [
        (r.split, r.epoch, r.step, r.rows, r.rows_total, r.loss, r.auc, r.normalised_entropy, r.lr)
        for r in records
    ]


@pytest.fixture(scope="module")
def undisturbed(
    cluster: Client, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Record], dict[str, bytes]]:
    """Records and weights of the job when nothing happens to it."""
    root = tmp_path_factory.mktemp("undisturbed") / "run"
    view = run_job(cluster, make_spec(prepared, *SOME_STEPS), root)
    assert view.state is JobState.SUCCEEDED, view.message
    assert not view.restarts
    return read_records(RunPaths(root)), saved_weights(root)


def check_same(root: Path, undisturbed: tuple[list[Record], dict[str, bytes]]) -> None:
    records, expected = undisturbed
    on_disk = read_records(RunPaths(root))
    assert scores(on_disk) == scores(records)
    elapsed_s = [record.elapsed_s for record in on_disk if record.split == "train"]
    assert elapsed_s == sorted(elapsed_s)
    assert saved_weights(root) == expected


@pytest.mark.slow
def test_a_killed_rank_is_restarted_from_its_checkpoint_and_nothing_shows(
    cluster: Client,
    prepared: Path,
    tmp_path: Path,
    undisturbed: tuple[list[Record], dict[str, bytes]],
) -> None:
    told: list[AttemptStarted] = []
    shot = Shot(40, kill_rank(1))

    def on_view(view: JobView) -> None:
        told.extend(entry for entry in view.progress if isinstance(entry, AttemptStarted))
        shot(view)

    root = tmp_path / "run"
    view = run_job(cluster, make_spec(prepared, *SOME_STEPS), root, on_view)
    assert view.state is JobState.SUCCEEDED, view.message
    assert (view.attempt, [restart.reason for restart in view.restarts]) == (2, ["RankDied"])
    assert [(entry.attempt, entry.reason) for entry in told] == [(1, ""), (2, "RankDied")]
    assert told[1].step >= 40
    check_same(root, undisturbed)
    assert not any(is_running(pid) for pid in shot.views[0].pids if pid)
    paths = RunPaths(root)
    assert paths.attempts() == (1, 2)
    assert all(paths.log(rank, attempt).exists() for rank in (0, 1) for attempt in (1, 2))
    summary = json.loads(paths.summary.read_text())
    assert (summary["attempts"], summary["restarts"][0]["reason"]) == (2, "RankDied")
    assert summary["checkpoints"]["step"] == 600
    assert summary["rows"] == read_records(paths)[-1].rows_total


@pytest.mark.slow
def test_some_submits_and_cancels_leave_nothing_behind(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    """Jobs that end at any moment of their start, and what they leave in every process."""
    here = psutil.Process()
    workers = [psutil.Process(pid) for pid in cluster.run(os.getpid).values()]

    def held() -> list[tuple[int, int, int]]:
        return [(p.num_fds(), p.num_threads(), len(p.children())) for p in (here, *workers)]

    def once(number: int) -> None:
        spec = make_spec(prepared, "train.max_steps=1000000", "train.epochs=1000000")
        job = JobHandle(cluster, new_job_id("cancelled"))
        job.submit(spec, tmp_path / str(number))
        for _ in range(number % 6):  # let it come a little further each time
            job.view()
        job.cancel()
        assert job.watch(lambda _: None).state is JobState.CANCELLED

    for number in range(6):
        once(number)
    before = held()
    for number in range(6):
        once(6 + number)

    def tell(dask_scheduler: object) -> tuple[int, int]:
        plugin = dask_scheduler.plugins["distrain-coordinator"]  # type: ignore[attr-defined]
        return len(plugin.gangs), len(plugin._tasks)

    assert cluster.run_on_scheduler(tell) == (0, 0)
    for _ in range(100):
        # A few come and go: connections among Dask's own.
        grown = [
            [now - then for now, then in zip(*pair, strict=True)]
            for pair in zip(held(), before, strict=True)
        ]
        if all(fds <= 3 and threads <= 3 and children <= 0 for fds, threads, children in grown):
            break
        cluster.run(os.getpid)
    else:
        pytest.fail(f"open files, threads and children grew by {grown}")
