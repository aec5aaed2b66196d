"""A cluster that the service starts: what becomes of its jobs when it dies, and when it idles."""

import json
import os
import re
import signal
import time
import zlib
from pathlib import Path

import pytest
from service_processes import end_cluster, serving, until
from small_jobs import small_document, write_prepared

from distrain.cluster import read_started
from distrain.run_paths import RunPaths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG_S = 240.0


def test_a_killed_cluster_is_started_anew_and_its_job_goes_on_from_its_checkpoint(tmp_path):
    folder = tmp_path / "data" / "clusters" / "local"
    config = tmp_path / "serve.yaml"
    local = {"kind": "local", "num_workers": 1, "device": "cpu", "idle_stop_s": 2.0}
    config.write_text(json.dumps({"clusters": {"local": local}}))
    spec = small_document(write_prepared(tmp_path / "prepared"))
    spec |= {
        "train": {"global_batch_size": 200, "epochs": 10_000, "log_every_steps": 5},
        "resources": {"num_ranks": 1, "device": "cpu"},
        "checkpoint": {"every_steps": 50},
    }
    try:
        with serving(tmp_path / "data", "--config", str(config)) as serve, serve.client() as client:
            kill_and_see(client, spec, folder)
    finally:  # after the service, which would start another
        end_cluster(folder)


def first_steps(run_dir, attempt):
    """With which step an attempt's first rank says that it began."""
    reports = RunPaths(Path(run_dir)).reports(0, attempt)
    if not reports.exists():
        return []
    text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(reports.read_bytes())  # it grows
    return [int(step) for step in re.findall(rb'"first_step": ?(\d+)', text)]


def kill_and_see(client, spec, folder):
    answer = client.post("/v1/jobs", json={"spec": spec}, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 201, answer.text
    place = f"/v1/jobs/{answer.json()['id']}"

    def job():
        return client.get(place).json()

    until(lambda: job()["checkpoints"], LONG_S)
    first = read_started(folder)
    os.killpg(first.process.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    shown = set()
    while time.monotonic() - killed_s < 40 and (now := job())["attempt"] == 1:
        shown.add((now["state"], now["attempt"]))
        time.sleep(0.2)
    now = job()
    assert (now["state"], now["attempt"]) != ("running", 1), shown
    until(lambda: (now := job())["attempt"] == 2 and now["state"] == "running", LONG_S)
    assert read_started(folder).process != first.process
    [first_step] = until(lambda: first_steps(job()["run_dir"], attempt=2), LONG_S)
    assert first_step >= 50

    client.post(f"{place}/cancel", json={"grace_s": 5.0}, headers={"Idempotency-Key": "two"})
    until(lambda: job()["state"] == "cancelled", LONG_S)
    second = read_started(folder)
    until(lambda: not second.process.is_running(), LONG_S)  # it has nothing to do any more
