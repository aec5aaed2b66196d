"""`--json` on every command that prints results: standard output is then JSON alone."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
import yaml
from click.testing import CliRunner
from distributed import Client, LocalCluster
from small_jobs import small_document

from distrain.cli.main import COMMANDS, cli
from distrain.cli.top import dashboard
from distrain.run_paths import RunPaths

pytestmark = pytest.mark.usefixtures("undrawn")

WITHOUT = {
    "demo": "it shows what other commands print",
    "completion": "it prints a script for a shell",
}
"""Commands without `--json`, and why."""

ELSEWHERE = {"jobs", "status", "attach", "cancel", "serve"} | {
    *("login", "submit", "wait", "resume", "clone", "priority", "open", "bench", "tune")
}
"""Run with `--json` by test_jobs.py, test_served_jobs.py, test_bench_command.py, test_tuning.py
and by the tests of the service."""


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_json_or_there_is_a_reason_why_not(name: str) -> None:
    options = {word for parameter in command_of(name).params for word in parameter.opts}
    assert ("--json" in options) != (name in WITHOUT)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options = {"n_workers": 1, "processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


class _Dashboard:
    def jobs(self) -> list[dict[str, Any]]:
        return [{"job_id": "a", "state": "running"}]

    def job(self, job_id: str) -> dict[str, Any]:
        return {"job_id": job_id, "ranks": []}


def test_every_command_that_takes_json_prints_json_alone(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_cluster = Mock(return_value=nullcontext(client))
    for user in ("distrain.cluster", "distrain.running.run"):
        monkeypatch.setattr(f"{user}.open_cluster", open_cluster)
    monkeypatch.setattr(dashboard, "dashboard_of", lambda *_: _Dashboard())
    monkeypatch.chdir(tmp_path)
    ran: set[str] = set()

    def run(*words: object) -> Any:
        ran.add(str(words[0]))
        done = CliRunner().invoke(cli, [*map(str, words), "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)

    made = run("synth", "--rows", 600, "--valid-rows", 300, "--out", "raw")
    assert made["splits"]["train"]["rows"] == 600
    made = run("prep", "raw/train-00000.tsv", "--valid", "raw/valid-00000.tsv", "--out", "data")
    assert made["version"] == 1
    assert made["folder"] == "data"
    assert run("pack", "data/train", "--out", "packed")["rows"] == 600
    assert len(run("schema", "data")["columns"]) == 40
    assert run("init", "criteo-mlp", "--data", "data", "--out", "made.yaml")["file"] == "made.yaml"
    document = small_document(tmp_path / "data")
    document["train"] |= {"max_steps": 2, "global_batch_size": 240, "audit": True}
    document["resources"] = {"backend": "inline", "device": "cpu"}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    assert run("plan", "job.yaml")["rows"] == 600
    assert run("train", "job.yaml", "--dry-run")["train"]["max_steps"] == 2
    for name in ("runs/a", "runs/b"):
        summary = run("train", "job.yaml", "--run-dir", name)
        assert (summary["state"], summary["run_dir"]) == ("succeeded", name)
    log = RunPaths(Path("runs/a")).log(rank=0, attempt=1)  # a rank in this process has none
    log.parent.mkdir(parents=True)
    log.write_text("one line\n")
    assert run("logs", "runs/a", "--first-error")["error"] is None
    assert [run("logs", "runs/a")["rank"]] == [0]
    assert run("audit", "runs/a")
    assert run("report", "runs/a")["files"] == ["runs/a/report.html"]
    compared = run("compare", "runs/a", "runs/b")
    assert len(compared["outcomes"]["state"]) == len(compared["runs"]) == 2
    assert "auc" in run("evaluate", "runs/a", "data/valid")
    for words, in_process in (((), True), (("--workers", 1), False)):
        scored = run("predict", "runs/a", "data/valid", "--out", "scores", "--overwrite", *words)
        assert (scored["rows"], open_cluster.call_args.args[0].in_process) == (300, in_process)
    mean = run("ensemble", "runs/a", "runs/b", "--out", "mean")
    # An ensemble says all that a model says, and more.
    exported = run("export", "mean", "--with-workflow", "--tables", "int8", "--out", "served")
    assert exported["kind"] == "ensemble"
    assert exported["rows"] > 200  # that predict and the folder score alike
    manifest = json.loads(Path("served/manifest.json").read_text())
    assert manifest["validation"] == exported["validation"]
    assert manifest["validation"]["rows"] == 300
    assert (mean["rows"], [*mean["runs"]]) == (300, ["runs/a", "runs/b"])
    assert run("top")["job"] == {"job_id": "a", "ranks": []}
    assert {check["name"] for check in run("doctor")} >= {"python", "torch"}
    assert ran == set(COMMANDS) - set(WITHOUT) - ELSEWHERE
