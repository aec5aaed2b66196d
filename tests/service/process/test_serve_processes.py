"""`distrain serve` as a user has it: what it prints, and how it ends."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from service_processes import serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    config = folder / "serve.yaml"
    config.write_text("clusters: {}\n")
    with serving(folder / "data", "--config", str(config)) as serve:
        yield serve


def me(serve):
    with serve.client() as client:
        return client.get("/v1/me").json()


def test_the_first_start_makes_all_that_it_needs(served, tmp_path):
    folder = served.told["data_dir"]
    assert os.stat(folder).st_mode & 0o077 == 0
    assert me(served)["is_admin"]
    with served.client("dtr_000000000000_x_0") as client:
        assert client.get("/v1/me").status_code == 401
    secret = served.told["token"].split("_")[2]
    assert secret not in served.log.read_text()
    assert [line for line in served.lines() if line.get("path") == "/v1/me"]
    with served.client() as client:
        assert client.get("/v1/me", headers={"X-Request-ID": "my-request"}).headers[
            "x-request-id"
        ] == ("my-request")


def test_a_second_service_on_the_folder_is_refused(served):
    words = [sys.executable, "-m", "distrain", "serve", "--data-dir", served.told["data_dir"]]
    done = subprocess.run(
        [*words, "--port", "0"], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 1
    assert "another service uses the database" in done.stderr


def test_ctrl_c_ends_the_service_in_order(tmp_path):
    with serving(tmp_path / "data", "--no-cluster") as serve:
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(60) == 0
        assert serve.log.read_text().endswith("the service has ended; clusters and jobs continue\n")
    with serving(tmp_path / "data", "--no-cluster") as serve:
        assert "token" not in serve.told  # it is shown once


def test_who_waits_for_a_job_is_answered_when_the_service_ends(tmp_path):
    config = tmp_path / "serve.yaml"
    config.write_text("clusters: {far: {kind: address, url: 'http://127.0.0.1:9'}}\n")
    with serving(tmp_path / "data", "--config", str(config)) as serve, serve.client() as client:
        spec = {"data": {"train": "/data/a"}, "model": {"kind": "mlp"}}
        job = client.put("/v1/jobs/once", json={"spec": spec}).json()["id"]
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(client.get, f"/v1/jobs/{job}/wait?timeout_s=30")
            client.get(f"/v1/jobs/{job}/wait?timeout_s=1")  # by then the service may have it
            serve.process.send_signal(signal.SIGINT)
            assert waits.result(60).status_code == 200
        assert serve.process.wait(60) == 0
