"""A killed service: its cluster and a running job go on, and so does `submit --wait`."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from service_processes import end_cluster, is_alive, serving, until
from small_jobs import small_document, write_prepared

from distrain.cluster import read_started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG_S = 240.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_the_next_service_adopts_the_cluster_and_a_waiting_submit_goes_on(tmp_path):
    folder = tmp_path / "data" / "clusters" / "local"
    config = tmp_path / "serve.yaml"
    local = {"kind": "local", "num_workers": 1, "device": "cpu"}
    config.write_text(json.dumps({"clusters": {"local": local}}))
    spec = small_document(write_prepared(tmp_path / "prepared"))
    spec |= {
        "train": {"global_batch_size": 200, "epochs": 100_000, "log_every_steps": 5},
        "resources": {"num_ranks": 1, "device": "cpu"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))  # JSON is YAML
    words = ("--config", str(config), "--port", str(free_port()))
    submit = None
    try:
        with serving(tmp_path / "data", *words) as first, first.client() as client:
            token = first.told["token"]
            environment = {
                **os.environ,
                "DISTRAIN_SERVER": first.told["url"],
                "DISTRAIN_TOKEN": token,
                "XDG_STATE_HOME": str(tmp_path / "state"),
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
            }
            submit = subprocess.Popen(
                [sys.executable, "-m", "distrain", "submit", str(tmp_path / "job.yaml"), "--wait"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )

            def running():
                jobs = client.get("/v1/jobs").json()["jobs"]
                return jobs and jobs[0]["state"] == "running" and jobs[0]["step"] and jobs[0]

            before = until(running, LONG_S)
            cluster = read_started(folder).process
            pids = [first.process.pid, *first.children().values()]
            for pid in pids:  # the supervisor first, or it would start the others again
                os.kill(pid, signal.SIGKILL)
            first.process.wait()
            until(lambda: not [pid for pid in pids if is_alive(pid)])
        assert cluster.is_running()
        assert submit.poll() is None

        with serving(tmp_path / "data", *words) as second, second.client(token) as client:
            place = f"/v1/jobs/{before['id']}"

            def further():
                job = client.get(place).json()
                return job["state"] == "running" and job["step"] > before["step"] and job

            after = until(further, LONG_S)
            assert (after["attempt"], after["restarts"]) == (before["attempt"], 0)
            assert read_started(folder).process == cluster
            assert submit.poll() is None
            submit.send_signal(signal.SIGINT)
            stdout, stderr = submit.communicate(timeout=60)
            assert submit.returncode == 130
            assert f"job {before['id']} is submitted" in stdout
            last = stderr.strip().splitlines()[-1]
            assert f"job {before['id']} is submitted and goes on without this command" in last
            assert f"distrain attach {before['id']}" in last
            assert "Traceback" not in stderr
            assert until(further, LONG_S)["attempt"] == before["attempt"]
            client.post(f"{place}/cancel", json={"force": True})
            until(lambda: client.get(place).json()["state"] == "cancelled", LONG_S)
    finally:
        if submit is not None and submit.poll() is None:
            submit.kill()
            submit.communicate()
        end_cluster(folder)
