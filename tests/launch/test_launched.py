"""Ranks that torchrun started: the same bits as on Dask, also where one is killed on the way."""

import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from small_jobs import make_spec, run_distrain, small_document, write_prepared
from waiting import until

from distrain.errors import STOP_SIGNALS, InputError, Terminated, on_sigterm
from distrain.jobs.assignment import Rendezvous, World
from distrain.jobs.run_paths import RunPaths
from distrain.launch.external_ranks import Gang, Launch
from distrain.launch.resuming import resume_or_begin
from distrain.runs.open_run import open_run
from distrain.runs.run_file import read_summary

STEPS = 1000  # so many that a rank is killed long before the last one
ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_an_environment_without_a_launcher_is_refused(wording: Any) -> None:
    for wrong in ({"RANK": ""}, {"WORLD_SIZE": "two"}, {"RANK": "2"}):
        wording.refused(InputError, partial(Launch.of_environment, {**ENVIRONMENT, **wrong}))


def test_restarts_of_torchelastic_meet_apart() -> None:
    again = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "3"}
    launch = Launch.of_environment({**ENVIRONMENT, **again})
    assert launch.meeting == Rendezvous("host", 29500, "a/3")
    assert not launch.has_store
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert Launch.of_environment({**ENVIRONMENT, **again, **agent}).has_store


def test_each_process_sees_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    launch = Launch.of_environment({**ENVIRONMENT, "LOCAL_RANK": "1"})
    for visible, own in (({}, "1"), ({"CUDA_VISIBLE_DEVICES": "4,6"}, "6")):
        environment = dict(visible)
        launch.take_own_gpu(environment)
        assert environment == {"CUDA_VISIBLE_DEVICES": own}


def test_a_directory_with_another_job_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = write_prepared(tmp_path / "data")
    spec = make_spec(prepared, "resources.backend=env")
    with open_run(tmp_path / "run", spec, "begun"):
        pass
    monkeypatch.setattr("distrain.launch.resuming.why_never_trained", lambda paths: None)
    monkeypatch.setattr(Launch, "join", lambda self: None)
    gang = Gang(Launch(World(0, 2), Rendezvous("host", 1, "")))
    job_id, same, resumed = resume_or_begin(
        tmp_path / "run", gang, lambda word: ("new", spec, None)
    )
    assert (same.train, job_id) == (spec.train, "begun")
    assert resumed is not None
    other = make_spec(prepared, "resources.backend=env", "train.seed=5")
    with pytest.raises(InputError):
        resume_or_begin(tmp_path / "run", gang, lambda word: ("new", other, None))


JOINS = """
import sys
from distrain.launch.external_ranks import Launch
try:
    store = Launch.of_environment().join()
except Exception as error:
    print(type(error).__name__, error, sep="\\n")
else:
    print("joined", flush=True)
    sys.stdin.read()
"""


def joining(port: int, rank: int, num_ranks: int) -> subprocess.Popen[str]:
    own = {"RANK": str(rank), "WORLD_SIZE": str(num_ranks), "MASTER_PORT": str(port)}
    environment = {**os.environ, **own, "MASTER_ADDR": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-c", JOINS],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_ranks_that_do_not_fit_each_other_are_refused_by_name(wording: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with joining(port, 0, 2) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "joined\n"
        for rank, num_ranks in ((0, 2), (1, 3), (1, 2), (1, 2)):
            output, errors = joining(port, rank, num_ranks).communicate("", timeout=120)
            assert "Traceback" not in errors
            wording(output, port=str(port))
        first.communicate("")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_notice_of_slurm_ends_a_process_in_order_as_sigterm_does(number: int) -> None:
    assert number in STOP_SIGNALS  # which ranks wait for
    with pytest.raises(Terminated), on_sigterm():
        signal.raise_signal(number)
    noticed: list[int] = []
    with on_sigterm(lambda got, _: noticed.append(got)):
        signal.raise_signal(number)
    assert noticed == [number]


def test_a_programs_own_handler_of_sigusr1_is_kept():
    got = []
    before = signal.signal(signal.SIGUSR1, lambda *_: got.append("own"))
    try:
        with on_sigterm(lambda *_: got.append("ours")):
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        with on_sigterm(), on_sigterm(lambda *_: got.append("inner")):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == ["own", "ours", "inner"]


@pytest.mark.slow
def test_a_killed_rank_of_torchrun_ends_with_the_bits_of_dask(tmp_path: Path) -> None:
    document = small_document(write_prepared(tmp_path / "data"))
    document["train"] |= {"max_steps": STEPS, "epochs": 60}  # type: ignore[operator]
    document["checkpoint"] = {"every_steps": 50}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    by_dask, by_env = tmp_path / "dask", tmp_path / "env"
    done = run_distrain("train", tmp_path / "job.yaml", "--run-dir", by_dask)
    assert done.returncode == 0, done.stderr

    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = ["--nproc-per-node", "2", "--max-restarts", "1", "-m", "distrain"]
    job = ["train", str(tmp_path / "job.yaml"), "--run-dir", str(by_env)]
    command = [*launcher, *words, *job, "--set", "resources.backend=env"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoints = RunPaths(by_env).checkpoints
    until(
        lambda: process.poll() is not None or list(checkpoints.glob("step-*/manifest.json")),
        "a checkpoint",
    )
    assert process.poll() is None, process.communicate()[0]
    ranks = {child.environ()["RANK"]: child for child in psutil.Process(process.pid).children()}
    ranks["1"].kill()
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output

    summary, expected = (read_summary(RunPaths(root)) for root in (by_env, by_dask))
    assert summary is not None
    assert expected is not None
    assert summary["attempts"] == 2, output
    for field in ("rows", "steps", "auc", "log_loss", "train_loss", "num_ranks"):
        assert summary[field] == expected[field], field
    models = [
        {path.name: path.read_bytes() for path in (root / "model").glob("*.safetensors")}
        for root in (by_env, by_dask)
    ]
    assert models[0]
    assert models[0] == models[1]
