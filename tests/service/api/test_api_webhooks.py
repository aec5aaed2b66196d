"""Webhooks over HTTP: made, shown, tested, deleted; addresses that are refused."""

import socket

import pytest
from api_world import World, api_world
from scripted_service import Reply, ScriptedService

from distrain.service.settings import Webhooks
from distrain.service.webhooks.posting import place_of, signature, webhook_secret

PUBLIC = "https://93.184.216.34/hook"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1:9/",
        "http://2130706433/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[fe80::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://localhost/",
        "http://user:password@93.184.216.34/",
        "ftp://93.184.216.34/",
        "http:///x",
        "http://93.184.216.34:99999/",
        "http://93.184.216.34/a b",
        "http://93.184.216.34/a\r\nX: y",
        "http://name.invalid/",
    ],
)
def test_addresses_that_are_refused(world: World, url: str):
    answer = world.ask("alice", "POST", "/v1/webhooks", {"project": "ads", "url": url})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["errors"][0]["pointer"] == "/url"


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch):
    answers = iter(["93.184.216.34", "127.0.0.1"])

    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert place_of("http://changes.example/").address == "93.184.216.34"


def test_a_webhook_is_made_shown_and_deleted(world: World):
    made = world.ask("alice", "POST", "/v1/webhooks", {"project": "ads", "url": PUBLIC})
    assert made.status_code == 201, made.text
    document = made.json()
    secret = document.pop("secret")
    assert secret == webhook_secret(world.app.state.parts.key, document["id"])
    path = f"/v1/webhooks/{document['id']}"
    assert made.headers["Location"] == path
    shown = world.ask("alice", "GET", path)
    assert shown.json() == document
    assert document["state"] == "active"
    assert document in world.ask("operator", "GET", "/v1/webhooks").json()["webhooks"]
    assert document not in world.ask("bob", "GET", "/v1/webhooks").json()["webhooks"]
    assert document not in world.ask("alice", "GET", "/v1/webhooks?project=web").json()["webhooks"]
    rows = world.ask("admin", "GET", "/v1/audit").json()["rows"]
    assert "93.184" not in str(rows)
    assert secret not in str(rows)
    world.store.move_webhook(document["id"], cursor=0, failures=2, next_at_s=1.0, error="no route")
    failing = world.ask("alice", "GET", path).json()
    assert (failing["state"], failing["error"]) == ("failing", "no route")
    world.store.move_webhook(document["id"], cursor=0, disabled_at_s=2.0, error="pruned")
    assert world.ask("alice", "GET", path).json()["state"] == "disabled"
    assert world.ask("alice", "DELETE", path).status_code == 204
    assert world.ask("alice", "GET", path).status_code == 404


def test_a_test_is_sent_and_signed(tmp_path):
    allowed = Webhooks(allow_private=("127.0.0.0/8",))
    replies = [Reply(200), Reply(307, b"", {"Location": "/elsewhere"})]
    receiver = ScriptedService(lambda seen: replies.pop(0))
    with receiver, api_world(tmp_path, webhooks=allowed) as world:
        wanted = {"project": "ads", "url": receiver.address + "/x?a=1"}
        made = world.ask("alice", "POST", "/v1/webhooks", wanted).json()
        path = f"/v1/webhooks/{made['id']}/test"
        told = world.ask("alice", "POST", path).json()
        assert told == {"delivered": True, "status": 200, "error": None}
        [seen] = receiver.seen
        assert (seen.path, seen.params) == ("/x", {"a": "1"})
        wanted = signature(made["secret"], seen.headers["distrain-timestamp"], seen.raw)
        assert seen.headers["distrain-signature"] == wanted
        told = world.ask("alice", "POST", path).json()
        assert (told["delivered"], told["status"]) == (False, 307)


def test_a_user_has_so_many(tmp_path):
    with api_world(tmp_path) as world:
        wanted = {"project": "ads", "url": PUBLIC}
        codes = [world.ask("bob", "POST", "/v1/webhooks", wanted).status_code for _ in range(21)]
    assert codes == [201] * 20 + [429]
