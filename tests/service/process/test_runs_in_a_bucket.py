"""A service whose run directories lie in an S3 bucket: a job, its readers, a killed recorder."""

import json
import os
import signal

import pytest
from object_stores import serving as bucket
from service_processes import end_cluster, serving, until
from small_jobs import small_document, write_prepared

from distrain.runs import StoredFolder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG_S = 240.0


def test_a_job_runs_in_a_bucket_and_its_recorder_is_killed(tmp_path):
    local = {"kind": "local", "num_workers": 2, "device": "cpu", "run_root": "s3://runs-e2e/all"}
    config = tmp_path / "serve.yaml"
    config.write_text(json.dumps({"clusters": {"local": local}}))
    spec = small_document(write_prepared(tmp_path / "prepared"))
    spec |= {
        "train": {"global_batch_size": 200, "max_steps": 800, "epochs": 1000, "log_every_steps": 5},
        "resources": {"num_ranks": 2, "device": "cpu"},
        "checkpoint": {"every_steps": 400, "keep": 1},
    }
    try:
        with (
            bucket("runs-e2e"),
            serving(tmp_path / "data", "--config", str(config)) as serve,
            serve.client() as client,
        ):
            follow(client, serve, spec)
    finally:
        end_cluster(tmp_path / "data" / "clusters" / "local")


def follow(client, serve, spec):
    answer = client.post("/v1/jobs", json={"spec": spec}, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 201, answer.text
    place = f"/v1/jobs/{answer.json()['id']}"
    run_dir = answer.json()["run_dir"]
    assert run_dir == f"s3://runs-e2e/all/default/{answer.json()['id']}"

    def job():
        return client.get(place).json()

    until(lambda: len(client.get(f"{place}/metrics").json()["records"]) > 20, LONG_S)
    os.kill(serve.children()["reconciler"], signal.SIGKILL)
    until(lambda: job()["state"] in ("succeeded", "failed", "cancelled"), LONG_S)
    assert job()["state"] == "succeeded", job()

    records, cursor, more = [], None, True
    while more:
        page = client.get(f"{place}/metrics", params={"since": cursor} if cursor else {}).json()
        records += page["records"]
        cursor, more = page["cursor"], page["more"]
    steps = [record["step"] for record in records if record["split"] == "train"]
    assert steps == list(range(5, 801, 5))

    for rank in (0, 1):
        log = until(
            lambda rank=rank: (
                (found := client.get(f"{place}/logs", params={"rank": rank})).headers["X-Complete"]
                == "true"
                and found
            ),
            LONG_S,
        )
        assert "the rank has done all its work" in log.text
    listed = client.get(f"{place}/artifacts").json()["artifacts"]
    names = [file["name"] for file in listed]
    assert names == sorted(names)
    assert {"metrics.jsonl", "run.json", "spec.yaml", "summary.json"} <= set(names)
    assert {"model/model.json", "logs/attempt-1/rank-1.log"} <= set(names)
    assert any(name.startswith("checkpoints/step-0000000800") for name in names)
    assert not any(name.endswith(".reports") or name.startswith("record") for name in names)
    part = client.get(f"{place}/artifacts/model/model.json", headers={"Range": "bytes=0-0"})
    assert (part.status_code, part.text) == (206, "{")
    summary = client.get(f"{place}/artifacts/summary.json").json()
    assert (summary["state"], summary["steps"]) == ("succeeded", 800)
    assert summary["model"] == f"{run_dir}/model"
    until(lambda: client.get(f"{place}/artifacts/report.html").status_code == 200, LONG_S)
    record = StoredFolder(run_dir).record()
    assert record is not None
    assert record.service.generation > 1
