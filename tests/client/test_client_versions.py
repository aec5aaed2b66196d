"""Clients of this version at services of other ones: answers of the real API, changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import api_world
from click.testing import CliRunner
from scripted_service import Reply, ScriptedService, Seen, problem

from distrain.cli.main import cli
from distrain.client import Client, Retries

PATHS = ("/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/spec", "/v1/jobs/{job}/metrics")
PATHS += ("/v1/jobs/{job}/artifacts", "/v1/clusters", "/v1/me", "/v1/tokens")
NEEDED = {"id", "state", "jobs", "clusters", "tokens", "artifacts", "records", "user", "spec"}
SPEC = {"data": {"train": ["/data/a"]}, "model": {"kind": "mlp"}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the real API answers, by path."""
    with api_world(tmp_path_factory.mktemp("api")) as world:
        job = world.submit(tags={"team": "a"})["id"]
        found = {}
        for path in PATHS:
            answer = world.ask("alice", "GET", path.format(job=job))
            assert answer.status_code == 200
            found[path.format(job=job)] = answer.json()
        yield {"job": job, **found}


def newer(value: Any) -> Any:
    """As a later version might answer: more fields, and words that there are not yet."""
    if isinstance(value, list):
        return [newer(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {name: newer(one) for name, one in value.items()} | {"phase_of_moon": {"full": [1]}}
    words = {"state": "hibernating", "reason": "Eclipse", "kind": "orbital"}
    return changed | {name: word for name, word in words.items() if name in value}


def older(value: Any) -> Any:
    """As an earlier version might: without what need not be there."""
    if isinstance(value, list):
        return [older(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: older(one) for name, one in value.items() if name in NEEDED}


@pytest.mark.parametrize("change", [newer, older])
def test_calls_and_commands_take_the_answers_of_other_versions(
    recorded: dict[str, Any], change: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    job_id = recorded["job"]
    one = f"/v1/jobs/{job_id}"
    has_ended: list[bool] = []

    def answer(seen: Seen) -> Reply:
        if seen.method in ("PUT", "POST", "PATCH"):
            return Reply(201, change(recorded[one]))
        if seen.path == one and has_ended:
            return Reply(200, change(recorded[one]) | {"state": "succeeded"})
        if seen.path.endswith("/events"):
            told = json.dumps(change(recorded[one]))
            text = f"id: 1\nevent: job.dreamt\ndata: {told}\n\nevent: end\ndata: {told}\n\n"
            return Reply(200, text.encode(), {"Content-Type": "text/event-stream"})
        if seen.params.get("below"):
            name = "logs/attempt-1/rank-0.log"
            end = [{"name": f"{name}.end"}] if change is newer else []
            return Reply(200, {"artifacts": [{"name": name, "size_bytes": 5}, *end]})
        if "/artifacts/" in seen.path:
            begin = int(seen.headers["range"].removeprefix("bytes=").partition("-")[0])
            content = b"5\n" if seen.path.endswith(".end") else b"line\n"
            return Reply(206, content[begin:]) if begin < len(content) else problem(416, "range")
        return Reply(200, change(recorded[seen.path]))

    with ScriptedService(answer) as service:
        with Client(service.address, "token", retries=Retries(for_s=1.0)) as client:
            job = client.job(job_id)
            assert (job.id, job.is_final) == (job_id, False)
            assert job.state == ("hibernating" if change is newer else "queued")
            assert [found.id for found in client.jobs()] == [job_id]
            assert client.find(job_id).id == job_id
            assert client.submit(SPEC).id == client.clone(job_id).id == job_id
            assert client.resume(job_id).id == client.cancel(job_id).id == job_id
            assert client.set_priority(job_id, 3).id == job_id
            assert client.set_tags(job_id, {"x": "y"}).id == job_id
            has_ended.append(True)
            assert client.wait(job_id).state == "succeeded"
            has_ended.clear()
            assert [event.kind for event in client.follow(job_id)] == ["job.dreamt", "end"]
            assert b"".join(client.logs(job_id)) == b"line\n"
            assert isinstance(client.spec(job_id), dict)
            assert client.metrics(job_id).records == []
            assert client.artifacts(job_id) == ()
            assert client.me().user == "alice"
            assert len(client.clusters()) == 1
            assert len(client.tokens()) == 1
        monkeypatch.setenv("DISTRAIN_SERVER", service.address)
        monkeypatch.setenv("DISTRAIN_TOKEN", "token")
        commands = ("jobs", "status", "cancel", "priority 3", "clone", "resume", "wait", "attach")
        for words in commands:
            has_ended += [True] if words == "wait" else []
            command, *more = words.split()
            arguments = [command, *([job_id] if command != "jobs" else []), *more]
            for form in ([], ["--json"]):
                done = CliRunner().invoke(cli, [*arguments, *form])
                assert done.exit_code == 0, (words, done.output, done.exception)
            assert json.loads(done.stdout)["version"] == 1
