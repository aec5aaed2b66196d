"""A worker looks at a job's data before the job is submitted to a bare scheduler."""

import subprocess

import pytest
import yaml
from dask_world import DaskWorld
from distributed import Client, LocalCluster
from small_jobs import run_distrain, small_document, write_prepared

from distrain.errors import ClusterError, InputError
from distrain.spec import parse_spec
from distrain.submission import check_on_worker, handle
from distrain.worker import spec_check

SPEC = parse_spec({"data": {"train": "/nowhere"}, "model": {"kind": "mlp"}})


@pytest.fixture(scope="module")
def client():
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    )
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client


def program(monkeypatch, text):
    """Run something else than `distrain plan`, which takes seconds to load."""
    monkeypatch.setattr(spec_check, "_PROGRAM", text)


def test_what_a_worker_remarks(client, monkeypatch):
    program(monkeypatch, 'print(\'{"notes": ["a batch is all rows"]}\')')
    assert check_on_worker(client, SPEC) == ("a batch is all rows",)


def test_mistakes_are_told_with_their_place(client, monkeypatch):
    document = {
        "errors": [
            {"message": "no such file", "where": {"file": "/nowhere"}, "hint": "Mount it."},
            {"message": "no model", "where": {}, "hint": None},
        ]
    }
    program(monkeypatch, f"import json; print(json.dumps({document!r}))")
    with pytest.raises(InputError) as found:
        check_on_worker(client, SPEC)
    assert found.value.exit_code == 1
    assert [part.message for part in found.value.parts] == ["no such file", "no model"]
    first = found.value.parts[0]
    assert (first.where, first.hint) == ({"on": "a worker", "file": "/nowhere"}, "Mount it.")


@pytest.mark.parametrize(
    ("text", "within_s", "told"),
    [
        ("raise SystemExit('broken')", 60.0, "exit code 1: broken"),
        ("import time; time.sleep(60)", 0.2, "did not end within"),
    ],
)
def test_a_check_that_comes_to_nothing(client, monkeypatch, text, within_s, told):
    program(monkeypatch, text)
    monkeypatch.setattr(handle, "CHECK_S", within_s)
    with pytest.raises(ClusterError, match=told) as failed:
        check_on_worker(client, SPEC)
    assert "Nothing was submitted" in failed.value.hint


def test_a_cluster_without_workers_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(handle, "CHECK_S", 0.05)
    monkeypatch.setattr(handle, "WORKER_WITHIN_S", 0.05)
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")
    with (
        cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match="no worker had room"),
    ):
        check_on_worker(client, SPEC)


@pytest.mark.slow
def test_files_that_only_the_command_sees_keep_a_job_from_being_submitted(tmp_path):
    hides = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
    hidden = tmp_path / "hidden"
    write_prepared(hidden / "prepared")
    wrapper = (*hides, str(hidden))
    tried = subprocess.run([*wrapper, "ls", str(hidden)], capture_output=True, check=False)
    if tried.returncode or tried.stdout:
        pytest.skip("needs a user who may mount in a namespace of his own (root)")
    job, run = tmp_path / "job.yaml", tmp_path / "run"
    document = small_document(hidden / "prepared")
    document["resources"]["num_ranks"] = 1
    job.write_text(yaml.safe_dump(document))
    world = tmp_path / "world"
    world.mkdir()
    with DaskWorld(world, 1, wrappers=[wrapper]) as cluster:
        words = ("submit", job, "--scheduler", cluster.address, "--run-dir", run, "--check")
        refused = run_distrain(*words)
        assert refused.returncode == 1, refused.stderr
        assert "on: a worker" in refused.stderr
        assert str(hidden / "prepared") in refused.stderr
        assert not run.exists()
        write_prepared(tmp_path / "seen")
        document["data"] = small_document(tmp_path / "seen")["data"]
        job.write_text(yaml.safe_dump(document))
        taken = run_distrain(*words)
        assert taken.returncode == 0, taken.stderr
        assert "is submitted" in taken.stdout
