"""Secrets that users or headers bring are nowhere: not in the database, in logs, or in answers."""

import logging
import sqlite3

import pytest
from api_world import SPEC, World

from distrain.errors import Unavailable

CANARY = "caNary7f3a"
URLS = [
    f"s3://key:{CANARY}@bucket/day_0",
    f"https://host/day_0?X-Amz-Signature={CANARY}",
    f"https://host/day_0#access_token={CANARY}",
    f"https://host/day_0?%73ig={CANARY}",
    f"s3://key:{CANARY}/x@bucket/day_0",
]


def specs(url: str):
    yield {**SPEC, "data": {"train": url}}
    yield {**SPEC, "data": {"train": ["/data/a"], "valid": [url]}}
    yield {**SPEC, "data": {"train": "/data/a", "schema": url}}
    yield {**SPEC, "data": {"train": "/data/a", "cache_dir": url}}
    yield {**SPEC, "checkpoint": {"dir": url}}
    yield {**SPEC, "train": {"init_from": url}}
    yield {**SPEC, "train": {"epochs": url}}
    yield {**SPEC, "tags": {"a": url}}
    yield {**SPEC, "tags": {url: "a"}}
    yield {**SPEC, "name": url}
    yield {**SPEC, "unknown": {"deep": [url]}}
    options = {"kind": "custom", "function": "clickmodels:make", "options": {"url": url}}
    yield {**SPEC, "model": options}


def dump(world: World) -> str:
    path = world.store.db.path
    assert path is not None
    with sqlite3.connect(path) as connection:
        return "\n".join(connection.iterdump())


@pytest.mark.parametrize("url", URLS)
def test_credentials_of_specs_are_refused_and_forgotten(
    world: World, url: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    job = world.submit()
    for spec in specs(url):
        new = f"/v1/jobs/{world.new_id()}"
        for method, path in (("PUT", new), ("POST", "/v1/jobs:validate")):
            answer = world.ask("alice", method, path, {"spec": spec, "project": "ads"})
            assert answer.status_code == (422 if path == new else 200)
            assert answer.json()["errors"]
            assert CANARY not in answer.text
    tagged = {"spec": SPEC, "project": "ads", "tags": {"a": url}}
    answers = [world.ask("alice", "PUT", f"/v1/jobs/{world.new_id()}", tagged)]
    path = f"/v1/jobs/{job['id']}"
    answers.append(world.ask("alice", "PATCH", path, {"tags": {"a": url}}))
    again = {"id": world.new_id(), "set": {"data.train": url}}
    answers.append(world.ask("alice", "POST", f"{path}/clone", again))
    for answer in answers:
        assert answer.status_code == 422
        assert CANARY not in answer.text
    assert CANARY not in dump(world)
    assert CANARY not in caplog.text


def test_tokens_and_unreadable_bodies_are_kept_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    text = world.ask("alice", "POST", "/v1/tokens", {}).json()["text"]
    secret = text.split("_")[2]
    headers = {"Authorization": f"Bearer {text}"}
    for body in (f'{{"spec": "{CANARY}"}}', f'{{"{CANARY}": ', f'{{"priority": "{CANARY}"}}'):
        answer = world.client.put("/v1/jobs/one", content=body, headers=headers)
        assert answer.status_code == 400
        assert CANARY not in answer.text
    wrong = world.client.get("/v1/me", headers={"Authorization": f"Bearer {CANARY}"})
    assert wrong.status_code == 401
    for place in (dump(world), caplog.text, wrong.text):
        assert CANARY not in place
        assert secret not in place
        assert text not in place


def test_unexpected_errors_tell_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object):
        raise RuntimeError(CANARY)

    def gone(*_: object):
        raise Unavailable(f"the database does not answer: {CANARY}")

    for error, told in ((broken, (500, "internal")), (gone, (503, "unavailable"))):
        monkeypatch.setattr(world.store, "clusters", error)
        answer = world.ask("alice", "GET", "/v1/clusters")
        assert (answer.status_code, answer.json()["code"]) == told
        assert CANARY not in answer.text
    assert int(answer.headers["Retry-After"]) >= 1
