"""The API over a real PostgreSQL: two of its processes at once, and texts that it cannot hold."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from api_world import SPEC, World, api_world
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from distrain.cli.main import cli
from distrain.errors import InputError
from distrain.service.api import make_app
from distrain.service.process.preparing import check_key
from distrain.service.store import JobFilter, open_store, tables
from distrain.service.values import Quota

BAD = {"NUL": "a\0b", "half a character": "a\ud800b"}


@pytest.fixture(scope="module")
def world(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = postgres.new_database()
    with api_world(tmp_path_factory.mktemp("api"), database_url=url) as world:
        yield world


def test_two_processes_that_race_for_a_quota_of_ten_let_ten_in(world: World) -> None:
    world.store.put_project("ads", Quota(max_queued=10, max_queued_per_user=None))
    other_settings = world.settings
    with open_store(other_settings, single=False) as store:
        app = make_app(store, other_settings)
        with TestClient(app, raise_server_exceptions=False) as other:
            clients = [world.client, other] * 25
            barrier = threading.Barrier(len(clients))

            def submit(number: int) -> httpx2.Response:
                headers = world.headers("alice", Idempotency_Key=f"race-{number}")
                barrier.wait()
                body = {"spec": SPEC, "project": "ads"}
                return clients[number].post("/v1/jobs", headers=headers, json=body)

            with ThreadPoolExecutor(len(clients)) as pool:
                answers = list(pool.map(submit, range(len(clients))))
    world.store.put_project("ads", Quota(max_queued_per_user=None, max_priority=10))
    codes = Counter(a.json()["code"] if a.status_code != 201 else "let in" for a in answers)
    waited = codes.pop("unavailable", 0)  # on a busy machine the database may answer too late
    assert codes == {"let in": 10, "quota": 40 - waited}
    assert len(world.store.jobs(JobFilter(project="ads"), limit=100)) == 10


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_texts_that_a_database_cannot_hold_are_refused(world: World, bad: str) -> None:
    job = world.submit()["id"]
    here = f"/v1/jobs/{job}"
    spec = {**SPEC, "data": {"train": f"/data/{bad}"}}
    calls = [
        ("POST", "/v1/jobs", {"spec": spec, "project": "ads"}),
        ("POST", "/v1/jobs", {"spec": {**SPEC, "tags": {"team": bad}}, "project": "ads"}),
        ("POST", "/v1/jobs", {"spec": {**SPEC, bad: 1}, "project": "ads"}),
        ("POST", "/v1/jobs", {"spec": SPEC, "project": bad}),
        ("POST", "/v1/jobs", {"spec": SPEC, "project": "ads", "cluster": bad}),
        ("POST", "/v1/jobs", {"spec": SPEC, "project": "ads", "tags": {bad: "x"}}),
        ("POST", "/v1/jobs", {"spec": SPEC, "project": "ads", "tags": {"x": bad}}),
        ("POST", f"{here}/clone", {"set": {"name": bad}}),
        ("POST", f"{here}/clone", {"set": {f"train.{bad}": 1}}),
        ("PATCH", here, {"tags": {"x": bad}}),
        ("POST", f"{here}/cancel", {"why": bad}),
        ("POST", "/v1/tokens", {"label": bad}),
        ("POST", "/v1/tokens", {"user": bad}),
        ("POST", "/v1/webhooks", {"project": "ads", "url": f"https://a.example/{bad}"}),
        ("PUT", "/v1/projects/new", {"members": {bad: "viewer"}}),
    ]
    for method, path, body in calls:
        headers = world.headers("admin", Idempotency_Key=world.key(), If_Match="*")
        headers["Content-Type"] = "application/json"
        content = json.dumps(body).encode()  # as escapes: JSON can say what UTF-8 cannot
        answer = world.client.request(method, path, headers=headers, content=content)
        assert 400 <= answer.status_code < 500, (method, path, body, answer.text)
        assert answer.json()["code"] != "internal"
    for query in ("text", "owner", "project", "state", "tag", "cluster", "cursor"):
        for raw in ("%00", "%ED%A0%80", "a%3D%00"):
            answer = world.ask("admin", "GET", f"/v1/jobs?{query}={raw}")
            assert answer.status_code < 500, (query, raw, answer.text)
    for raw in ("%00", "%ED%A0%80"):
        for path in (f"/v1/jobs/{raw}", f"/v1/projects/{raw}", f"/v1/tokens/{raw}"):
            method = "DELETE" if "tokens" in path else "GET"
            answer = world.ask("admin", method, path)
            assert answer.status_code < 500, (path, answer.text)


def test_of_first_starts_at_once_one_key_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read that no key is noted before either notes its own."""
    facts = tables.facts
    with world.store.db.write() as connection:
        connection.execute(facts.delete().where(facts.c.name == "key_fingerprint"))
    folder = world.settings.data_dir / "other"
    folder.mkdir()
    other = world.settings.model_copy(update={"data_dir": folder})
    both_have_read, of_store = threading.Barrier(2), world.store.fact
    reads = threading.local()

    def fact(name: str) -> str | None:
        found = of_store(name)
        if not hasattr(reads, "done"):
            reads.done = True
            both_have_read.wait(60)
        return found

    monkeypatch.setattr(world.store, "fact", fact)
    with ThreadPoolExecutor(2) as threads:
        starts = [threads.submit(check_key, world.store, s) for s in (world.settings, other)]
        refused = [start for start in starts if isinstance(start.exception(), InputError)]
    monkeypatch.undo()
    assert len(refused) == 1
    check_key(world.store, other if refused[0] is starts[0] else world.settings)
    with world.store.db.write() as connection:
        connection.execute(facts.delete().where(facts.c.name == "key_fingerprint"))


def test_a_process_with_another_key_does_not_start(world: World) -> None:
    check_key(world.store, world.settings)
    check_key(world.store, world.settings)
    folder = world.settings.data_dir / "elsewhere"
    folder.mkdir()
    other = world.settings.model_copy(update={"data_dir": folder})
    with pytest.raises(InputError, match="is not that of its other processes") as told:
        check_key(world.store, other)
    assert str(folder / "service.key") in str(told.value)

    def serve(*words: str) -> Result:
        environment = {"DISTRAIN_SERVE_DATABASE_URL": str(world.settings.database_url)}
        place = ["--data-dir", str(folder)]
        return CliRunner().invoke(cli, ["serve", *words, *place], env=environment)

    for words in (("api", "--port", "0"), ("reconcile",)):
        refused = serve(*words)
        assert isinstance(refused.exception, InputError)
        assert "distrain serve migrate" in str(refused.exception)
    checks = {check["name"]: check for check in json.loads(serve("check", "--json").stdout)}
    assert checks["key of all processes"]["verdict"] == "fail"
    assert serve("migrate").exit_code == 0  # the key was changed on purpose
    checks = {check["name"]: check for check in json.loads(serve("check", "--json").stdout)}
    assert "key of all processes" not in checks
    with pytest.raises(InputError):
        check_key(world.store, world.settings)
