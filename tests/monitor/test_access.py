"""The token before everything that a scheduler serves."""

import re

import pytest
from monitored import Site, on_site
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.websocket import WebSocketClientConnection, websocket_connect

from distrain.errors import ClusterError
from distrain.monitor.access import TOKEN_VARIABLE, Guard, token_of_environment

TOKEN = "s3cret token/+?"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GUARDED = (
    "/distrain", "/distrain/jobs", "/distrain/jobs/a", "/distrain/openapi.json", "/metrics",
    "/status", "/individual-plots.json", "/info/main/workers.html", "/sitemap.json", "/",
    "/json/counts.json", "/statics/css/base.css", "/nothing",
)  # fmt: skip


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    return TOKEN


async def websocket(site: Site, headers: dict[str, str]) -> WebSocketClientConnection:
    """As a browser opens it for a page that it has loaded."""
    page = await site.get("/distrain", headers=BEARER)
    found = re.search(r'"token":"([^"]+)"', page.body.decode())
    assert found is not None, page.body[:400]
    request = HTTPRequest(site.url.replace("http", "ws") + "/distrain/ws", headers=headers)
    return await websocket_connect(request, subprotocols=["bokeh", found[1]])


def test_nothing_comes_without_the_token(token: str) -> None:
    async def story(site: Site) -> None:
        wrong = (
            {},
            {"Authorization": "Bearer " + TOKEN[:-1]},
            {"Authorization": "Basic " + TOKEN},
            {"Cookie": "distrain-00000000=1"},
        )
        for path in GUARDED:
            for headers in wrong if path == "/distrain" else wrong[:1]:
                answer = await site.get(path, headers=headers)
                assert answer.code == 401, path
                assert b"token" in answer.body
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = await site.get(
                "/distrain/jobs?token=x", method=method, allow_nonstandard_methods=True
            )
            assert answer.code == 401, method
        assert (await site.get("/distrain?token=wrong")).code == 401
        assert (await site.get("/health")).body == b"ok"
        with pytest.raises(HTTPClientError, match="401"):
            await websocket(site, {})

    on_site(story, dashboard=True)


def test_everything_comes_with_the_token(token: str) -> None:
    async def story(site: Site) -> None:
        site.submit("a")
        for path in ("/distrain", "/distrain/jobs/a", "/metrics", "/status"):
            answer = await site.get(path, headers=BEARER)
            assert answer.code == 200, path
        connection = await websocket(site, BEARER)
        assert await connection.read_message()
        connection.close()
        welcome = await site.get("/distrain/jobs?x=1&token=s3cret%20token/%2B?&y=2")
        assert (welcome.code, welcome.headers["Location"]) == (302, "./jobs?x=1&y=2")
        cookie = welcome.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Lax"} < set(re.split("; ", cookie))
        assert "Secure" not in cookie
        assert "s3cret" not in cookie
        by_cookie = {"Cookie": cookie.partition(";")[0]}
        assert (await site.get("/distrain/jobs", headers=by_cookie)).code == 200
        connection = await websocket(site, by_cookie)
        assert await connection.read_message()
        connection.close()

    on_site(story, dashboard=True)


def test_without_a_token_configured_all_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)

    async def story(site: Site) -> None:
        assert (await site.get("/distrain/jobs")).code == 200
        assert (await site.get("/metrics")).code == 200

    on_site(story)


def test_an_empty_token_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, " ")
    with pytest.raises(ClusterError, match="DISTRAIN_DASHBOARD_TOKEN is empty"):
        token_of_environment()


@pytest.mark.parametrize("cookie", ["", "a=b; c", "distrain-x=" + "é", "=", ";;;", "a" * 10_000])
def test_odd_cookies_are_no_token(cookie: str) -> None:
    guard = Guard(TOKEN)
    for sent in (cookie, f"{guard.cookie_name}={cookie}"):
        assert not guard.lets_pass(HTTPHeaders({"Cookie": sent}))


def test_two_tokens_have_two_cookies() -> None:
    one, other = Guard("one"), Guard("other")
    assert one.cookie_name != other.cookie_name
    assert one.cookie_value != other.cookie_value


def test_over_https_the_cookie_stays_there(token: str) -> None:
    async def story(site: Site) -> None:
        headers = {"X-Forwarded-Proto": "https"}
        welcome = await site.get("/status?token=s3cret%20token/%2B?", headers=headers)
        assert "Secure" in welcome.headers["Set-Cookie"]
        assert welcome.headers["Location"] == "./status"

    on_site(story)
