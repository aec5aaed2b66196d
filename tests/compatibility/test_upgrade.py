"""A service of 0.1.0 with a running job is upgraded as docs/operate.md says, and put back."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from service_processes import end_cluster, serving
from small_jobs import small_document, write_prepared
from waiting import until

from distrain.version import build
from distrain.workers.cluster_file import read_started

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
FIRST = "cb0f8a7b"  # the last commit of 0.1.0, which wrote 0.1.0.tar.xz, too
LONG_S = 400.0


def environment(folder):
    """Variables with which commands run the code of a folder, wherever they are started."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@pytest.fixture
def earlier(tmp_path):
    """Variables for 0.1.0, out of this checkout's history; its kernels' fallbacks suffice."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", FIRST, "distrain"], capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"this checkout's history lacks 0.1.0: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return environment(tmp_path / "earlier")


def distrain(variables, *words):
    command = [sys.executable, "-m", "distrain", *map(str, words)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Upgraded:
    """The service's folder, and its two jobs, as one version after another serves them."""

    def __init__(self, folder):
        self.data, self.cluster = folder / "data", folder / "data" / "clusters" / "local"
        self.config = folder / "serve.yaml"
        local = {"kind": "local", "num_workers": 1, "device": "cpu"}
        self.config.write_text(json.dumps({"clusters": {"local": local}}))
        spec = small_document(write_prepared(folder / "prepared"))
        spec["resources"] = {"num_ranks": 1, "device": "cpu"}
        self.short = spec | {"name": "short"}
        train = {"global_batch_size": 200, "epochs": 100_000, "log_every_steps": 5}
        self.long = spec | {"name": "long", "train": train, "checkpoint": {"every_steps": 50}}

    def serving(self, variables):
        return serving(self.data, "--config", str(self.config), environment=variables)


def submit(client, spec):
    key = {"Idempotency-Key": spec["name"]}
    answer = client.post("/v1/jobs", json={"spec": spec}, headers=key)
    assert answer.status_code == 201, answer.text
    return f"/v1/jobs/{answer.json()['id']}"


def running(client, place, attempt, step):
    """The job once it runs in this attempt beyond a step."""

    def found():
        job = client.get(place).json()
        assert job["state"] not in ("failed", "cancelled"), job
        at_work = job["state"] == "running" and job["attempt"] == attempt
        return at_work and (job["step"] or 0) > step and job

    return until(found, within_s=LONG_S)


def test_a_running_job_goes_on_through_an_upgrade_and_its_way_back(earlier, tmp_path):
    world, now, backup = Upgraded(tmp_path), environment(ROOT), tmp_path / "before.db"
    assert "0.1.0" in distrain(earlier, "--version")
    assert build() in distrain(now, "--version")
    try:
        with world.serving(earlier) as serve, serve.client() as client:
            token = serve.told["token"]
            short, long = submit(client, world.short), submit(client, world.long)
            before = running(client, long, 1, step=60)
            distrain(earlier, "serve", "backup", backup, "--data-dir", world.data)
            run_dir = Path(before["run_dir"])
            shutil.copytree(run_dir, tmp_path / "before")
            cluster = read_started(world.cluster).process
        with world.serving(now) as serve, serve.client(token) as client:
            # The job stays where it is, on the cluster of the earlier version.
            after = running(client, long, 1, step=before["step"] + 20)
            assert after["restarts"] == 0
            assert read_started(world.cluster).process == cluster
            assert client.get(short).json()["state"] == "succeeded"
        end_cluster(world.cluster)
        with world.serving(now) as serve, serve.client(token) as client:
            # The next cluster is of this version: it goes on from the last checkpoint.
            running(client, long, 2, step=after["step"])
            again = submit(client, world.short | {"name": "again"})
        end_cluster(world.cluster)
        distrain(earlier, "serve", "restore", backup, "--data-dir", world.data)
        run_dir.rename(tmp_path / "later")  # whose checkpoints the earlier version does not read
        (tmp_path / "before").rename(run_dir)
        with world.serving(earlier) as serve, serve.client(token) as client:
            # The backup knows the long job as running, and nothing of what came after.
            assert client.get(again).status_code == 404
            assert client.get(short).json()["state"] == "succeeded"
            running(client, long, 2, step=before["step"] + 20)
    finally:
        end_cluster(world.cluster)
