"""The sbatch template and the service's profile `slurm` on a real Slurm, with two nodes."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import real_slurm
from safetensors.numpy import load_file
from service_processes import serving
from small_jobs import run_distrain, small_document
from waiting import until

from distrain.jobs.run_paths import RunPaths
from distrain.runs.attempts import read_records
from distrain.service.clusters.choosing import make_launcher
from distrain.service.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_slurm.why_absent() is not None, reason=str(real_slurm.why_absent())),
]

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "deploy" / "slurm" / "train.sbatch"
LONG_S = 300.0
BOTH_NODES = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2", "--cpus-per-task=1")


@pytest.fixture(scope="module")
def slurm():
    with real_slurm.Slurm() as world:
        support = f"{ROOT}:{ROOT / 'tests' / 'support'}"
        world.environment |= {
            "PYTHONPATH": support,
            "DISTRAIN_MODEL_PACKAGES": "slow_models",
            "DISTRAIN_PYTHON": sys.executable,
            "DISTRAIN_DEVICE": "cpu",
        }
        yield world


@pytest.fixture
def no_jobs_left(slurm):
    yield
    slurm.run("scancel", "--user=root")
    until(lambda: not slurm.run("squeue", "--noheader"), "all jobs have ended")


@pytest.mark.release
def test_a_disturbed_job_ends_with_the_weights_of_an_undisturbed_one(
    slurm, prepared, tmp_path, monkeypatch, no_jobs_left
):
    slow = tmp_path / "slow"
    slow.touch()
    spec = small_document(prepared)
    spec["model"] = {
        "kind": "custom",
        "function": "slow_models:slow_perceptron",
        "options": {"while_there": str(slow)},
    }
    # Two minutes while it is slow: Slurm may take half a minute to send a notice.
    spec["train"] |= {"max_steps": 600, "epochs": 12, "log_every_steps": 1}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(spec))
    run, log = RunPaths(tmp_path / "run"), tmp_path / "log"
    number = slurm.run(
        "sbatch", "--parsable", *BOTH_NODES, f"--output={log}", TEMPLATE, file, run.root
    )

    def attempts_that_trained():
        return {record.attempt for record in read_records(run)}

    def has_restarted(times):
        job = slurm.job(number)
        assert job["JobState"] not in ("FAILED", "COMPLETED"), told(f"not its start {times + 1}")
        return int(job["Restarts"]) >= times

    def told(what):
        return f"{what}: {slurm.told(number, log)}"

    until(lambda: attempts_that_trained() == {1}, lambda: told("steps"), LONG_S)
    # A job of higher priority takes both nodes. Slurm sends SIGTERM and waits for `GraceTime`.
    slurm.run("sbatch", "--partition=high", "--exclusive", "--nodes=2", "--output=/dev/null",
              "--wrap=sleep 1")  # fmt: skip
    until(lambda: has_restarted(1), lambda: told("the preempted job is requeued"), LONG_S)
    assert [*run.checkpoints.glob("*/manifest.json")]
    assert "reason: Preempted" in log.read_text()
    assert "requeued: " in log.read_text()
    assert "CoordinatorLost" not in log.read_text()

    until(lambda: 2 in attempts_that_trained(), lambda: told("its second start's steps"), LONG_S)
    minutes = 2 + sum(
        int(part) * scale
        for part, scale in zip(slurm.job(number)["RunTime"].split(":"), (60, 1), strict=False)
    )
    slurm.run("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")
    until(lambda: has_restarted(2), lambda: told("the time limit has it requeued"), LONG_S)
    slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=60")
    slow.unlink()
    job = slurm.wait_for(number, "COMPLETED", "FAILED", wait_s=LONG_S)
    assert job["JobState"] == "COMPLETED", log.read_text()[-5000:]
    assert "failed to teardown" not in log.read_text()
    assert run.attempts()[-1] == 3
    assert not [*tmp_path.glob("run.cluster/*")]  # keys and addresses

    monkeypatch.setenv("PYTHONPATH", slurm.environment["PYTHONPATH"])
    monkeypatch.setenv("DISTRAIN_MODEL_PACKAGES", "slow_models")
    done = run_distrain("train", file, "--run-dir", tmp_path / "undisturbed")
    assert done.returncode == 0, done.stderr
    weights = load_file(run.model / "weights.safetensors")
    others = load_file(tmp_path / "undisturbed" / "model" / "weights.safetensors")
    assert {name: tensor.tobytes() for name, tensor in weights.items()} == {
        name: tensor.tobytes() for name, tensor in others.items()
    }


def test_each_task_of_a_node_takes_a_gpu_of_its_own(slurm):
    program = (
        "from os import environ as e; from distrain.workers.serve_slurm import gpu_of; "
        "print(e['SLURMD_NODENAME'], e['CUDA_VISIBLE_DEVICES'], gpu_of(e))"
    )
    words = ["srun", "--nodes=2", "--gpus-per-node=2"]
    python = [sys.executable, "-c", program]
    told = slurm.run(*words, "--ntasks-per-node=2", *python)
    assert sorted(told.splitlines()) == ["a 0,1 0", "a 0,1 1", "b 0,1 0", "b 0,1 1"]
    told = slurm.run(*words, "--ntasks-per-node=2", "--gpus-per-task=1",
                     "--gpu-bind=single:1", *python)  # fmt: skip
    assert sorted(told.splitlines()) == ["a 0 0", "a 1 1", "b 0 0", "b 1 1"]
    with pytest.raises(AssertionError, match="task 2 of this node has no GPU for itself"):
        slurm.run(*words, "--ntasks-per-node=3", *python)


@pytest.fixture
def here(slurm, monkeypatch, no_jobs_left):
    """This process finds Slurm as the service does."""
    for name in ("SLURM_CONF", "PYTHONPATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    return slurm


def profile_in(folder, **more):
    return {"kind": "slurm", "run_root": str(folder / "shared"), "device": "cpu", **more}


def launcher_in(folder):
    settings = Settings(data_dir=folder / "data", clusters={"gpu": profile_in(folder)})
    return make_launcher("gpu", settings, "0123456789abcdef")


@pytest.mark.release
def test_a_starter_killed_between_sbatch_and_its_answer_leaves_one_job(here, tmp_path, monkeypatch):
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    real = here.run("sh", "-c", "command -v sbatch")
    # The starter dies when the job is Slurm's, and before it hears of it.
    sbatch.write_text(f'#!/bin/sh\n{real} "$@" >/dev/null\nkill -9 $PPID\n')
    sbatch.chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{path}")
    starter = os.fork()
    if starter == 0:
        with contextlib.suppress(BaseException):
            launcher_in(tmp_path).start()
        os._exit(1)
    _, status = os.waitpid(starter, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    monkeypatch.setenv("PATH", path)

    launcher = launcher_in(tmp_path)
    launcher.start()
    [first] = here.run("squeue", "--noheader", "--format=%i").split()
    [script] = tmp_path.glob("shared/.clusters/*/job.sh")
    surplus = here.run("sbatch", "--parsable", script)  # as of a starter that had looked before
    until(lambda: here.job(surplus)["JobState"] == "PENDING", "the second waits for the first")
    until(lambda: launcher.state().phase in ("starting", "running"), "the first runs")
    assert here.wait_for(surplus, "CANCELLED")
    found = until(launcher.find, "the cluster has told its address", LONG_S)
    assert found.token
    assert launcher.state().detail == f"Slurm's job {first} runs"
    launcher.stop()
    until(lambda: launcher.state().phase == "absent", "the job has ended")
    assert launcher.find() is None
    [log] = tmp_path.glob(f"shared/.clusters/*/job-{first}.log")
    assert "Stopped scheduler" in log.read_text()  # it left by itself
    assert "CANCELLED" not in log.read_text()


def test_the_service_starts_a_cluster_trains_and_releases_it(here, prepared, tmp_path):
    options = {"nodes": "2", "gpus-per-node": "2", "time": "30"}
    profile = profile_in(tmp_path, num_workers=2, idle_stop_s=1.0, slurm=options)
    config = tmp_path / "serve.yaml"
    config.write_text(json.dumps({"clusters": {"gpu": profile}}))
    with serving(tmp_path / "data", "--config", str(config)) as serve, serve.client() as client:
        body = {"spec": small_document(prepared)}
        answer = client.put("/v1/jobs/one", json=body)
        assert answer.status_code == 201, answer.text
        place = f"/v1/jobs/{answer.json()['id']}"
        until(
            lambda: client.get(place).json()["state"] in ("succeeded", "failed"), "its end", LONG_S
        )
        assert client.get(place).json()["state"] == "succeeded", client.get(place).text
        until(lambda: not here.run("squeue", "--noheader"), "the idle cluster is released", LONG_S)
