"""`distrain submit --check` with a service: nothing is submitted that a worker finds wrong."""

import re

import pytest
import yaml
from click.testing import CliRunner
from scripted_service import Reply, ScriptedService, problem

from distrain.cli.main import cli
from distrain.errors import ClusterError, InputError

TOKEN = "dtr_0123456789_verysecretverysecret_abcdef"
SPEC = {"name": "dlrm", "data": {"train": ["/data/train"]}, "model": {"kind": "mlp"}}


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Run the command against a service whose check ends as is said; the request's paths, too."""
    for name in ("DISTRAIN_CA_FILE", "DISTRAIN_SCHEDULER", "DISTRAIN_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISTRAIN_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("distrain.client.job_calls._CHECK_POLL_S", 0.001)
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
        return done, [seen.path for seen in service.seen if seen.path != "/v1/clusters"]

    return run


MISTAKE = {"message": "no such file", "where": {"file": "/data/train"}, "hint": "Mount it."}
FOUND = [{"pointer": "/spec/train/epochs", "detail": "is 0"}]


@pytest.mark.parametrize(
    ("answers", "error", "code"),
    [
        ({"states": ({"state": "failed", "errors": [MISTAKE], "notes": []},)}, InputError, 1),
        ({"started": problem(422, "bad_spec", errors=FOUND)}, InputError, 1),
        (
            {"states": ({"state": "lost", "error": "the worker has died", "errors": []},)},
            ClusterError,
            69,
        ),
    ],
    ids=["data", "spec", "lost"],
)
def test_a_check_that_does_not_pass_submits_nothing(submit, answers, error, code, wording):
    done, asked = submit(*answers.pop("states", ()), **answers)
    assert isinstance(done.exception, error)
    assert done.exception.exit_code == code
    assert not [path for path in asked if path.startswith("/v1/jobs/")]
    wording(re.sub(r":\d{4,}", ":PORT", str(done.exception)))


def test_a_job_whose_data_a_worker_finds_good_is_submitted(submit):
    passed = {"state": "passed", "notes": ["a batch is all rows"], "errors": []}
    done, asked = submit({"state": "running"}, passed)
    assert done.exit_code == 0, done.output
    assert "a batch is all rows" in done.output
    assert asked[-1].startswith("/v1/jobs/")
