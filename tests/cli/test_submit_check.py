"""`distrain submit --check` with a service: nothing is submitted that a worker finds wrong."""

import pytest
import yaml
from click.testing import CliRunner
from scripted_service import Reply, ScriptedService, problem

from distrain.cli.main import cli
from distrain.errors import ClusterError, InputError

TOKEN = "dtr_0123456789_verysecretverysecret_abcdef"
SPEC = {"name": "dlrm", "data": {"train": ["/data/train"]}, "model": {"kind": "mlp"}}
MISTAKE = {"message": "no such file", "where": {"file": "/data/train"}, "hint": "Mount it."}


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Run the command against a service whose check ends as is said; the request's paths, too."""
    for name in ("DISTRAIN_CA_FILE", "DISTRAIN_SCHEDULER", "DISTRAIN_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISTRAIN_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("distrain.client.job_calls._LEAST_S", 0.001)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))

    def run(*states, started=None):
        left = list(states)

        def answer(seen):
            if seen.path == "/v1/jobs:validate":
                assert seen.params == {"data": "true"}
                assert seen.body["cluster"] == "gpu-a"
                return started or Reply(202, {"url": "/v1/preflights/abc"})
            if seen.path == "/v1/preflights/abc":
                return Reply(200, left.pop(0))
            return Reply(201, {"id": "dlrm-1", "name": "dlrm", "state": "queued", "rev": 1})

        with ScriptedService(answer) as service:
            words = ["submit", str(tmp_path / "job.yaml"), "--server", service.address]
            done = CliRunner().invoke(cli, [*words, "--cluster", "gpu-a", "--check"])
        return done, [seen.path for seen in service.seen]

    return run


def test_a_job_whose_data_a_worker_finds_good_is_submitted(submit):
    passed = {"state": "passed", "notes": ["a batch is all rows"], "errors": []}
    done, asked = submit({"state": "running"}, passed)
    assert done.exit_code == 0, done.output
    assert "note of a worker: a batch is all rows" in done.output
    assert "job dlrm-1 is submitted" in done.output
    assert asked[-1] == "/v1/jobs"


def test_mistakes_in_the_data_submit_nothing(submit, tmp_path):
    done, asked = submit({"state": "failed", "errors": [MISTAKE], "notes": []})
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 1
    assert str(done.exception) == (
        "no such file\n  on: a worker\n  file: /data/train\n  hint: Mount it."
    )
    assert "/v1/jobs" not in asked
    assert not list(tmp_path.glob("state/**/*.json"))  # no key is left behind


def test_mistakes_in_the_spec_are_told_with_their_pointer(submit):
    found = [{"pointer": "/spec/train/epochs", "detail": "is 0"}]
    done, asked = submit(started=problem(422, "bad_spec", errors=found))
    assert str(done.exception) == "is 0\n  at: /spec/train/epochs"
    assert done.exception.exit_code == 1
    assert asked == ["/v1/jobs:validate"]


def test_a_check_that_was_lost_is_no_mistake_of_the_spec(submit):
    done, asked = submit({"state": "lost", "error": "the worker has died", "errors": []})
    assert isinstance(done.exception, ClusterError)
    assert done.exception.exit_code == 69
    assert "the worker has died" in str(done.exception)
    assert "/v1/jobs" not in asked
