"""Who is let in: tokens, sessions and proxies."""

import json

import pytest
from api_world import SPEC, World, api_world
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from distrain.service.access.sessions import (
    COOKIE,
    make_token,
    new_session,
    token_sha256,
)
from distrain.service.process.api_server import RequestLog
from distrain.service.settings import Limits, Listen, SignOn
from distrain.service.values import Quota, Scope


def get_me(world: World, text: str):
    return world.client.get("/v1/me", headers={"Authorization": f"Bearer {text}".encode()})


def test_without_a_token_the_answer_is_401(world: World):
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}):
        answer = world.client.get("/v1/jobs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_mistyped_token_does_not_reach_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    text = world.tokens["alice"]
    monkeypatch.setattr(world.store, "token_and_user", None)  # whoever calls it gets a 500
    swapped = text[:20] + text[21] + text[20] + text[22:]
    wrong = [
        swapped if swapped != text else text[:-1],
        text[:-1],
        text.upper(),
        "dtr_é",
        "x" * 9999,
    ]
    assert [get_me(world, one).status_code for one in wrong] == [401] * 5
    assert get_me(world, text).status_code == 500


def test_tokens_end_by_time(world: World):
    ended = world.token("alice", expires_at_s=world.store.now_s() - 1)
    assert get_me(world, ended).status_code == 401
    assert get_me(world, make_token().text).status_code == 401


def test_a_tokens_text_is_shown_once_and_works(world: World):
    body = {"label": "laptop", "scopes": ["read"], "days": 1}
    made = world.ask("alice", "POST", "/v1/tokens", body)
    assert made.status_code == 201
    document = made.json()
    text = document.pop("text")
    assert get_me(world, text).json()["scopes"] == ["read"]
    listed = world.ask("alice", "GET", "/v1/tokens").json()["tokens"]
    mine = next(token for token in listed if token["id"] == document["id"])
    assert {**mine, "used_at": None} == document
    assert mine["used_at"] is not None
    assert text not in json.dumps(listed)
    gone = world.ask("alice", "DELETE", f"/v1/tokens/{document['id']}")
    assert gone.status_code == 204
    assert get_me(world, text).status_code == 401


def test_tokens_of_others_and_wider_ones_are_refused(world: World):
    narrow = world.token("alice", Scope.ADMIN, Scope.READ)
    headers = {"Authorization": f"Bearer {narrow}"}
    wider = world.client.post("/v1/tokens", json={"scopes": ["submit"]}, headers=headers)
    assert wider.status_code == 403
    for days in (0, 0.04, 366):
        assert world.ask("alice", "POST", "/v1/tokens", {"days": days}).status_code == 400
    assert world.ask("alice", "POST", "/v1/tokens", {"user": "bob"}).status_code == 403
    assert world.ask("alice", "GET", "/v1/tokens?user=bob").status_code == 403
    assert world.ask("admin", "GET", "/v1/tokens?user=bob").status_code == 200
    for_bob = world.ask("admin", "POST", "/v1/tokens", {"user": "bob"}).json()
    assert get_me(world, for_bob["text"]).json()["user"] == "bob"
    assert world.ask("alice", "DELETE", f"/v1/tokens/{for_bob['id']}").status_code == 404


def test_a_session_needs_its_own_origin_for_changes(world: World):
    token, _ = world.store.token_and_user(token_sha256(world.tokens["alice"]))
    cookie = new_session(world.store, token.id, world.store.now_s())

    def ask(method: str, path: str, cookie: str = cookie, **headers: str):
        sent = {"Cookie": f"{COOKIE}={cookie}".encode()}
        sent |= {name.replace("_", "-"): value.encode() for name, value in headers.items()}
        body = {"tags": {}} if method == "PATCH" else None
        return world.client.request(method, path, json=body, headers=sent)

    job = f"/v1/jobs/{world.submit()['id']}"
    assert ask("GET", job).status_code == 200
    assert ask("PATCH", job).status_code == 403
    for origin in ("https://elsewhere.example", "http://testserver:81", "null"):
        assert ask("PATCH", job, Origin=origin).status_code == 403, origin
    assert ask("PATCH", job, Origin="http://testserver").status_code == 200
    basic = ask("PATCH", job, Authorization="Basic YTpi")
    assert basic.status_code == 403  # credentials that a browser sends by itself are not a token
    old = new_session(world.store, token.id, world.store.now_s() - 1e6)
    assert ask("GET", job, old).status_code == 401
    assert ask("GET", job, token.sha256.hex()).status_code == 401
    assert ask("GET", job, "nonsense.é").status_code == 401


def test_a_proxys_header_counts_over_its_own_socket_alone(tmp_path):
    settings = {"sign_on": SignOn(), "listen": Listen(unix_socket=tmp_path)}
    with api_world(tmp_path, **settings) as world:
        headers = {"X-Forwarded-User": "alice"}
        assert world.client.get("/v1/me", headers=headers).status_code == 401

        def through(method="GET", **scope: object):
            async def app(inner, receive, send):
                await world.app({**inner, **scope}, receive, send)

            path = "/v1/me" if method == "GET" else "/v1/tokens"
            return TestClient(app).request(method, path, headers=headers, json={})

        socket = through(client=None, server=(str(tmp_path), None))
        assert (socket.status_code, socket.json()["user"]) == (200, "alice")
        for origin in ("https://elsewhere.example", "null"):  # `null`: of a sandboxed frame
            headers["Origin"] = origin
            sent = through("POST", client=None, server=(str(tmp_path), None))
            assert sent.status_code == 403, origin
        assert through(client=None).status_code == 401  # a TCP port whose peer is not known


@pytest.mark.parametrize(
    ("sign_on", "peer", "address"),
    [(SignOn(), None, "203.0.113.9"), (None, None, ""), (SignOn(), ("10.0.0.5", 1), "10.0.0.5")],
)
def test_a_trusted_proxys_address_of_the_client_is_logged(tmp_path, sign_on, peer, address):
    with api_world(tmp_path, sign_on=sign_on, listen=Listen(unix_socket=tmp_path)) as world:

        async def app(scope, receive, send):
            server = ("h", 80) if peer else (str(tmp_path), None)
            inner = {**scope, "client": peer, "server": server}
            await RequestLog(world.app)(inner, receive, send)

        headers = {"X-Forwarded-User": "alice", "X-Forwarded-For": "10.9.9.9, 203.0.113.9"}
        headers["Origin"] = "https://elsewhere.example"
        with capture_logs() as logged:
            TestClient(app).post("/v1/tokens", headers=headers, json={})
    [line] = [line for line in logged if line["event"] == "request"]
    is_named = sign_on is not None and peer is None
    assert (line["status"], line["user"]) == ((403, "alice") if is_named else (401, ""))
    assert line["address"] == address


def test_quotas_answer_429(world: World):
    world.store.put_project("small", Quota(max_queued=1, max_priority=0))
    body = {"spec": SPEC, "project": "small", "cluster": "gpu"}
    answers = [world.ask("admin", "PUT", f"/v1/jobs/{world.new_id()}", body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 429]
    assert answers[1].json()["code"] == "quota"
    assert "Retry-After" in answers[1].headers
    listed = world.ask("admin", "GET", "/v1/projects").json()["projects"]
    [seen] = [one for one in listed if one["name"] == "small"]
    assert seen["usage"] == {"ranks": 0, "queued": 1}


def test_pages_follow_each_other_and_bad_cursors_are_refused(world: World):
    old = [world.submit(tags={"page": "old"})["id"] for _ in range(4)]
    query = "/v1/jobs?limit=3&tag=page%3Dold"
    page = world.ask("alice", "GET", query).json()
    world.submit(tags={"page": "old"})
    cursor = page["next_cursor"]
    rest = world.ask("alice", "GET", f"{query}&cursor={cursor}").json()["jobs"]
    assert [job["id"] for job in page["jobs"] + rest] == old[::-1]
    wrong = ["/v1/jobs?limit=201", "/v1/jobs?tag=page"]
    bad = ("x", "é", "0", "9" * 150)
    for path in [*wrong, *(f"{query}&cursor={one}" for one in bad)]:
        answer = world.ask("alice", "GET", path)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), path


def test_a_user_holds_so_many_tokens(tmp_path):
    with api_world(tmp_path, limits=Limits(tokens=3)) as world:
        made = [world.ask("alice", "POST", "/v1/tokens", {}) for _ in range(3)]
        assert [answer.status_code for answer in made] == [201, 201, 429]
        assert world.ask("admin", "POST", "/v1/tokens", {"user": "alice"}).status_code == 201
        world.ask("alice", "DELETE", f"/v1/tokens/{made[0].json()['id']}")
        world.ask("alice", "DELETE", f"/v1/tokens/{made[1].json()['id']}")
        assert world.ask("alice", "POST", "/v1/tokens", {}).status_code == 201
