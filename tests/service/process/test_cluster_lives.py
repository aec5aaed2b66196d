"""A service that starts a cluster, with run folders in a bucket: what outlives which kill."""

import json
import os
import signal
import subprocess
import sys

import pytest
from dask_world import free_port
from object_stores import serving as bucket
from service_processes import end_cluster, serving
from small_jobs import small_document, write_prepared
from waiting import until

from distrain.workers.cluster_file import read_started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG_S = 240.0


def job_of(client, place, *states):
    """A job's document once it has a state; `None` before."""
    job = client.get(place).json()
    return job if job["state"] in states else None


def train_records(client, place):
    """All records of training, page by page."""
    records, cursor, more = [], None, True
    while more:
        page = client.get(f"{place}/metrics", params={"since": cursor} if cursor else {}).json()
        records += page["records"]
        cursor, more = page["cursor"], page["more"]
    return [record for record in records if record["split"] == "train"]


def test_clusters_jobs_and_waiting_commands_outlive_the_service_and_jobs_their_cluster(tmp_path):
    folder = tmp_path / "data" / "clusters" / "local"
    config = tmp_path / "serve.yaml"
    local = {"kind": "local", "num_workers": 2, "device": "cpu", "run_root": "s3://lives/all"}
    config.write_text(json.dumps({"clusters": {"local": local | {"idle_stop_s": 2.0}}}))
    spec = small_document(write_prepared(tmp_path / "prepared"))
    spec |= {
        "train": {"global_batch_size": 200, "epochs": 100_000, "log_every_steps": 5},
        "resources": {"num_ranks": 2, "device": "cpu"},
        "checkpoint": {"every_steps": 50, "keep": 1},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))  # JSON is YAML
    words = ("--config", str(config), "--port", str(free_port()))
    submits = []
    try:
        with bucket("lives"):
            with serving(tmp_path / "data", *words) as first, first.client() as client:
                token = first.told["token"]
                submits.append(waiting_submit(tmp_path, first))
                before = until(lambda: running_job(client), "it trains", LONG_S)
                cluster = read_started(folder).process
                first.process.kill()
                first.process.wait()
            assert cluster.is_running()
            assert submits[0].poll() is None
            with serving(tmp_path / "data", *words) as second, second.client(token) as client:
                place = f"/v1/jobs/{before['id']}"
                is_adopted(client, place, before)
                assert read_started(folder).process == cluster
                leave_the_command(submits[0], before["id"])
                kill_the_cluster(client, place, folder)
                short_job_ends(client, second, spec)
                last = read_started(folder).process
                until(lambda: not last.is_running(), "it has nothing to do any more", LONG_S)
    finally:
        for submit in submits:
            submit.kill()
            submit.communicate()
        end_cluster(folder)


def waiting_submit(folder, serve):
    environment = {
        **os.environ,
        "DISTRAIN_SERVER": serve.told["url"],
        "DISTRAIN_TOKEN": serve.told["token"],
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    command = [sys.executable, "-m", "distrain", "submit", str(folder / "job.yaml"), "--wait"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def running_job(client):
    jobs = client.get("/v1/jobs").json()["jobs"]
    return jobs and jobs[0]["state"] == "running" and jobs[0]["step"] and jobs[0]


def is_adopted(client, place, before):
    """The job goes on in the same attempt."""

    def further():
        job = job_of(client, place, "running")
        return job and job["step"] > before["step"] and job

    after = until(further, "the job goes on", LONG_S)
    assert (after["attempt"], after["restarts"]) == (before["attempt"], 0)


def leave_the_command(submit, job_id):
    """Ctrl-C leaves the job to the service, and says how to come back to it."""
    assert submit.poll() is None
    submit.send_signal(signal.SIGINT)
    stdout, stderr = submit.communicate(timeout=60)
    assert (submit.returncode, job_id in stdout, "Traceback" in stderr) == (130, True, False)
    assert f"distrain attach {job_id}" in stderr.strip().splitlines()[-1]


def kill_the_cluster(client, place, folder):
    """Another one is started, where the job goes on from its checkpoint."""
    until(lambda: client.get(place).json()["checkpoints"], "a checkpoint", LONG_S)
    killed = read_started(folder).process
    os.killpg(killed.pid, signal.SIGKILL)

    def again():
        job = job_of(client, place, "running")
        return job and job["attempt"] == 2 and job["step"] and job

    until(again, "the job goes on", LONG_S)
    assert read_started(folder).process != killed
    until(lambda: train_records(client, place)[-1]["attempt"] == 2, "its records", LONG_S)
    records = train_records(client, place)
    steps = [record["step"] for record in records]
    assert steps == sorted(set(steps)), "none twice"
    gone = sorted(set(range(5, steps[-1] + 1, 5)) - set(steps))
    assert not gone or gone == list(range(gone[0], gone[-1] + 1, 5)), "one upload at most"
    assert records[0]["attempt"] == 1, "what the checkpoint holds is not trained again"
    client.post(f"{place}/cancel", json={"grace_s": 5.0})
    until(lambda: job_of(client, place, "cancelled"), "it is cancelled", LONG_S)


def short_job_ends(client, serve, spec):
    """A job whose service is killed leaves all its files in the bucket."""
    spec["train"] |= {"max_steps": 400}
    answer = client.put("/v1/jobs/one", json={"spec": spec})
    assert answer.status_code == 201, answer.text
    job_id, run_dir = answer.json()["id"], answer.json()["run_dir"]
    place = f"/v1/jobs/{job_id}"
    assert run_dir == f"s3://lives/all/default/{job_id}"
    until(lambda: len(train_records(client, place)) > 10, "records", LONG_S)
    serve.kill()
    serve.ready()
    until(lambda: job_of(client, place, "succeeded", "failed"), "it ends", LONG_S)
    assert [record["step"] for record in train_records(client, place)] == list(range(5, 401, 5))
    for rank in (0, 1):
        log = f"{place}/artifacts/logs/attempt-1/rank-{rank}.log"
        until(lambda end=f"{log}.end": client.get(end).is_success, log, LONG_S)
        assert client.get(log).text
    names = [file["name"] for file in client.get(f"{place}/artifacts").json()["artifacts"]]
    assert names == sorted(names)
    files = {"records/attempt-1.jsonl", "run.json", "spec.yaml", "summary.json"}
    assert files <= set(names)
    assert {"model/model.json", "logs/attempt-1/rank-1.log"} <= set(names)
    assert any(name.startswith("checkpoints/step-0000000400") for name in names)
    part = client.get(f"{place}/artifacts/model/model.json", headers={"Range": "bytes=0-0"})
    assert (part.status_code, part.text) == (206, "{")
    summary = client.get(f"{place}/artifacts/summary.json").json()
    assert (summary["state"], summary["steps"]) == ("succeeded", 400)
    assert summary["model"] == f"{run_dir}/model"
