"""The template of a cluster, and the service that uses it, on a real Slurm with two nodes."""

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
TEMPLATE = ROOT / "deploy" / "slurm" / "cluster.sbatch"
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


def test_the_service_trains_on_a_cluster_of_the_template(slurm, no_jobs_left, prepared, tmp_path):
    folder = tmp_path / "cluster"
    options = ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--cpus-per-task=1"]
    words = [*options, "--mem=1000", f"--output={tmp_path}/log", TEMPLATE, folder]
    number = slurm.run("sbatch", "--parsable", *words)
    until((folder / "url").exists, lambda: (tmp_path / "log").read_text(), LONG_S)
    profile = {"token_file": str(folder / "token"), "run_root": str(tmp_path / "shared")}
    config = tmp_path / "serve.yaml"
    config.write_text(json.dumps({"clusters": {"gpu": profile}}))
    url = {"DISTRAIN_SERVE_CLUSTERS__GPU__URL": (folder / "url").read_text()}
    data = tmp_path / "data"
    with (
        serving(data, "--config", str(config), environment=url) as serve,
        serve.client() as client,
    ):
        answer = client.put("/v1/jobs/one", json={"spec": small_document(prepared)})
        assert answer.status_code == 201, answer.text
        place = f"/v1/jobs/{answer.json()['id']}"
        until(
            lambda: client.get(place).json()["state"] in ("succeeded", "failed"), "its end", LONG_S
        )
        assert client.get(place).json()["state"] == "succeeded", client.get(place).text
    slurm.run("scancel", "--signal=USR1", number)
    slurm.wait_for(number, "COMPLETED")
