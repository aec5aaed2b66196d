"""A worker looks at a job's data before the job is submitted to a bare scheduler."""

import pytest
from distributed import Client, LocalCluster

from distrain.errors import ClusterError, InputError
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import install_coordinator
from distrain.launch.scheduler_api import scheduler_api
from distrain.launch.worker_check import check_on_worker
from distrain.scheduler.http import preflight
from distrain.workers import spec_check

SPEC = parse_spec({"data": {"train": "/nowhere"}, "model": {"kind": "mlp"}}).model_dump(mode="json")


@pytest.fixture(scope="module")
def api():
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    )
    with cluster, Client(cluster, set_as_default=False) as client:
        install_coordinator(client)
        yield scheduler_api(client)


def program(monkeypatch, text):
    """Run something else than `distrain plan`, which takes seconds to load."""
    monkeypatch.setattr(spec_check, "_PROGRAM", text)


def test_what_a_worker_remarks(api, monkeypatch):
    program(monkeypatch, 'print(\'{"notes": ["a batch is all rows"]}\')')
    assert check_on_worker(api, SPEC) == ["a batch is all rows"]


def test_mistakes_are_told_with_their_place(api, monkeypatch):
    document = {
        "errors": [
            {"message": "no such file", "where": {"file": "/nowhere"}, "hint": "Mount it."},
            {"message": "no model", "where": {}, "hint": None},
        ]
    }
    program(monkeypatch, f"import json; print(json.dumps({document!r}))")
    with pytest.raises(InputError) as found:
        check_on_worker(api, SPEC)
    assert found.value.exit_code == 1
    assert [part.message for part in found.value.parts] == ["no such file", "no model"]
    first = found.value.parts[0]
    assert (first.where, first.hint) == ({"on": "a worker", "file": "/nowhere"}, "Mount it.")


@pytest.mark.slow
def test_a_check_that_comes_to_nothing(api, monkeypatch):
    program(monkeypatch, "raise SystemExit('broken')")
    with pytest.raises(ClusterError, match="broken") as failed:
        check_on_worker(api, SPEC)
    assert failed.value.hint is not None
    monkeypatch.setattr(preflight, "LIMIT_S", 1.0)
    program(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(ClusterError, match="1 s"):
        check_on_worker(api, SPEC)
