"""The sbatch template and the service's profile `slurm` on a real Slurm, with two nodes."""

import json
import sys
from pathlib import Path

import pytest
import real_slurm
from service_processes import serving
from small_jobs import small_document
from waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_slurm.why_absent() is not None, reason=str(real_slurm.why_absent())),
]

ROOT = Path(__file__).parents[3]
LONG_S = 300.0


@pytest.fixture(scope="module")
def slurm():
    with real_slurm.Slurm() as world:
        support = f"{ROOT}:{ROOT / 'tests' / 'support'}"
        world.environment |= {
            "PYTHONPATH": support,
            "DISTRAIN_PYTHON": sys.executable,
            "DISTRAIN_DEVICE": "cpu",
        }
        yield world


@pytest.fixture
def no_jobs_left(slurm):
    yield
    slurm.run("scancel", "--user=root")
    until(lambda: not slurm.run("squeue", "--noheader"), "all jobs have ended")


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
