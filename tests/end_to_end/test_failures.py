"""Ranks that die, losses that explode, jobs that do not fit: named, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import psutil
import pytest
from damaged import tell
from distributed import Client, LocalCluster
from small_jobs import distrain_command, is_running, make_spec, small_document
from yaml import safe_dump

from distrain.jobs.states import JobState
from distrain.jobs.view import JobView
from distrain.run_paths import new_job_id
from distrain.spec import JobSpec
from distrain.submission.handle import JobHandle

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


def run_until_training(job: JobHandle) -> JobView:
    """The first view in which every rank has taken steps."""
    seen: list[JobView] = []

    class Training(Exception):
        pass

    def on_view(view: JobView) -> None:
        if view.records:
            seen.append(view)
            raise Training

    with pytest.raises(Training):
        job.watch(on_view)
    return seen[0]


def test_kill_9_on_one_rank_ends_the_command_and_names_it(prepared: Path, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(safe_dump(small_document(prepared)))
    overrides = [word for assignment in ENDLESS for word in ("--set", assignment)]
    command = distrain_command("train", spec, *overrides, "--run-dir", tmp_path / "run")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    lines: list[str] = []
    training = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if re.search(r"step \d+", line):
                training.set()
        training.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert training.wait(120), "".join(lines)
        family = psutil.Process(process.pid).children(recursive=True)
        ranks = [p for p in family if "distrain.train.rank" in " ".join(p.cmdline())]
        assert len(ranks) == 2, "".join(lines)
        victim = ranks[1]
        victim.send_signal(signal.SIGKILL)
        assert process.wait(timeout=120) == 100
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()
    output = "".join(lines)
    killed = re.search(r"rank (\d) \(pid (\d+) on tcp://\S+\) was killed by SIGKILL", output)
    assert killed, output
    assert int(killed[2]) == victim.pid
    assert f"logs: {tmp_path / 'run' / 'logs'}" in output
    # multiprocessing's resource tracker ends itself, a moment after the command that began it.
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], output
    assert '"reason": "RankDied"' in (tmp_path / "run" / "summary.json").read_text()


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGABRT])
def test_a_dead_rank_is_the_culprit_and_not_its_peers(
    cluster: Client, prepared: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    spec = make_spec(prepared, *ENDLESS, "resources.num_ranks=3")
    job = submit(cluster, spec, tmp_path)
    pids = run_until_training(job).pids
    assert len(set(pids)) == 3
    assert pids[1] is not None
    psutil.Process(pids[1]).send_signal(sign)
    view = job.watch(lambda _: None)
    assert view.state is JobState.FAILED
    assert view.reason == "RankDied"
    assert view.message is not None
    assert f"rank 1 (pid {pids[1]} on " in view.message
    assert sign.name in view.message
    assert not any(is_running(pid) for pid in pids if pid)


@pytest.mark.slow
@pytest.mark.release
def test_a_non_finite_loss_names_step_and_rank(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(prepared, "train.optimizer={kind: sgd, lr: 1.0e+30}")
    view = submit(cluster, spec, tmp_path).watch(lambda _: None)
    assert view.state is JobState.FAILED
    assert view.reason == "NonFiniteLoss"
    assert view.message is not None
    assert re.search(r"rank \d: the loss became (nan|inf) at step [2-5] on rank \d", view.message)
    assert "lr" in view.message
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
@pytest.mark.release
def test_cancelling_stops_the_ranks(cluster: Client, prepared: Path, tmp_path: Path) -> None:
    job = submit(cluster, make_spec(prepared, *ENDLESS), tmp_path)
    pids = run_until_training(job).pids
    job.cancel()
    view = job.watch(lambda _: None)
    assert view.state is JobState.CANCELLED
    assert not any(is_running(pid) for pid in pids if pid)


@pytest.mark.slow
def test_a_job_cancelled_while_it_starts_leaves_nothing_and_blocks_nobody(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    for number in range(4):
        job = submit(cluster, make_spec(prepared, *ENDLESS), tmp_path / str(number))
        for _ in range(number):  # let it come a little further each time
            job.view()
        job.cancel()
        assert job.watch(lambda _: None).state is JobState.CANCELLED
    spec = make_spec(prepared, "resources.num_ranks=4")  # needs every worker
    view = submit(cluster, spec, tmp_path / "next").watch(lambda _: None)
    assert view.state is JobState.SUCCEEDED
    workers = [psutil.Process(pid) for pid in cluster.run(os.getpid).values()]
    ranks = [child for worker in workers for child in worker.children(recursive=True)]
    assert not [child for child in ranks if "distrain.train.rank" in " ".join(child.cmdline())]


def test_a_gang_larger_than_the_cluster_says_what_it_waits_for(
    prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(prepared, "resources.num_ranks=6", "deadlines.queue_s=0.5")
    seen: list[str] = []
    options = {"n_workers": 1, "processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        view = submit(client, spec, tmp_path).watch(lambda view: seen.append(view.why_pending))
    assert "needs 6 workers, the cluster has 1" in seen
    assert view.reason == "QueueDeadlineExceeded"
    assert "needs 6 workers, the cluster has 1" in (view.message or "")


@pytest.mark.slow
def test_gangs_submitted_at_once_run_one_after_the_other(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(prepared, "resources.num_ranks=3")
    jobs = [submit(cluster, spec, tmp_path / str(number)) for number in range(2)]
    views = [job.watch(lambda _: None) for job in jobs]
    assert [view.state for view in views] == [JobState.SUCCEEDED] * 2
    weights = {(Path(v.model_path or "") / "weights.safetensors").read_bytes() for v in views}
    assert len(weights) == 1


@pytest.mark.slow
@pytest.mark.release
def test_a_data_error_in_a_rank_is_told_without_a_traceback(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    """A file that vanishes between the check and the ranks' start is named."""
    spec = make_spec(prepared, f"data.train={tmp_path / 'gone.parquet'}", f"data.schema={prepared}")
    view = submit(cluster, spec, tmp_path).watch(lambda _: None)
    assert view.reason == "DataError"
    assert "gone.parquet" in (view.message or "")
    assert "Traceback" not in (view.message or "")


@pytest.mark.parametrize(
    "to_all",
    [pytest.param(False, marks=pytest.mark.release), True],
    ids=["command", "terminal"],
)
@pytest.mark.slow
def test_an_interrupt_cancels_the_job(prepared: Path, tmp_path: Path, to_all: bool) -> None:
    """In a terminal, Ctrl-C reaches workers and ranks as well; the command decides all the same."""
    spec = tmp_path / "job.yaml"
    spec.write_text(safe_dump(small_document(prepared)))
    overrides = [word for assignment in ENDLESS for word in ("--set", assignment)]
    command = distrain_command("train", spec, *overrides, "--run-dir", tmp_path / "run")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if re.search(r"step \d+", line):
                    break
            family = psutil.Process(process.pid).children(recursive=True)
            (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        except BaseException:  # it would train on beside all other tests
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 103, output
    assert "Traceback" not in output
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
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
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(safe_dump(small_document(prepared)))
    done = tell(
        capsys, "train", spec, "--run-dir", tmp_path / "run",
        "--set", "resources={backend: inline, num_ranks: 1}",
        "--set", "train.optimizer={kind: sgd, lr: 1.0e+30}",
    )  # fmt: skip
    assert done.exit_code == 100
    assert re.search(r"rank 0: the loss became (nan|inf) at step [2-5] on rank 0", done.stderr)
    assert "lr" in done.stderr
    assert not (tmp_path / "run" / "model").exists()
