"""`distrain serve` as a user has it: what it prints, and what dies when what dies."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from service_processes import is_alive, serving
from waiting import until

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
    assert os.stat(f"{folder}/service.key").st_mode & 0o077 == 0
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
    assert done.returncode == 69
    assert "another `distrain serve` has the data folder" in done.stderr


@pytest.mark.parametrize("name", ["api-0", "reconciler"])
def test_a_killed_process_is_started_again_and_no_request_is_lost(served, name):
    before = served.children()[name]
    os.kill(before, signal.SIGKILL)
    assert me(served)["user"] == "operator"  # waits in the socket's queue
    until(lambda: served.children()[name] != before)
    [said] = [line for line in served.lines() if line.get("pid") == before and "exit_code" in line]
    assert (said["child"], said["exit_code"]) == (name, -signal.SIGKILL)


def test_a_reload_takes_a_good_file_and_refuses_a_bad_one(served):
    config = served.log.parent / "serve.yaml"
    pids = served.children()
    config.write_text("clusters: {}\nlimits: {tags: many}\n")
    [refused] = until(lambda: [li for li in served.lines() if "not reloaded" in li["event"]])
    assert "limits.tags" in refused["why"]
    assert served.children() == pids
    assert me(served)
    config.write_text("clusters: {}\nlisten: {host: '::1'}\n")
    until(lambda: [li for li in served.lines() if "does not change listen" in li.get("why", "")])
    config.write_text("clusters: {}\nprojects: {news: {max_ranks: 3}}\n")
    until(lambda: not set(served.children().values()) & set(pids.values()))
    with served.client() as client:
        quotas = client.get("/v1/quotas").json()
    assert "news" in str(quotas)


def test_ctrl_c_ends_all_processes_in_order(tmp_path):
    with serving(tmp_path / "data", "--no-cluster") as serve:
        pids = serve.children()
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(60) == 0
        assert not [pid for pid in pids.values() if is_alive(pid)]
        assert serve.lines()[-1]["event"].endswith("have ended")
        assert serve.log.read_text().endswith("the service has ended; clusters and jobs go on\n")
    with serving(tmp_path / "data", "--no-cluster") as serve:
        assert "token" not in serve.told  # it is shown once
        pids = serve.children()
        serve.process.kill()
        serve.process.wait()
        until(lambda: not [pid for pid in pids.values() if is_alive(pid)], "they end with it")


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
