"""The token before everything that a scheduler serves."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from monitored import Site, beside, new_site
from order_site import no_token as no_token
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.websocket import WebSocketClientConnection, websocket_connect

from distrain.errors import ClusterError
from distrain.scheduler.http.access import Guard, install_access
from distrain.workers.secrets import (
    FILE_VARIABLE,
    MIN_LENGTH,
    TOKEN_VARIABLE,
    token_of_environment,
)

TOKEN = "s3cret token/+?~"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GUARDED = (
    "/distrain", "/distrain/v1/jobs", "/distrain/v1/jobs/a", "/metrics",
    "/status", "/individual-plots.json", "/info/main/workers.html", "/sitemap.json", "/",
    "/json/counts.json", "/statics/css/base.css", "/nothing",
)  # fmt: skip


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    return TOKEN


async def load_page(site: Site) -> str:
    """The token of the page's session."""
    page = await site.get("/distrain", headers=BEARER)
    found = re.search(r'"token":"([^"]+)"', page.body.decode())
    assert found is not None, page.body[:400]
    return found[1]


async def websocket(site: Site, session: str, headers: dict[str, str]) -> WebSocketClientConnection:
    """As a browser opens it for a page that it has loaded."""
    request = HTTPRequest(site.url.replace("http", "ws") + "/distrain/ws", headers=headers)
    return await websocket_connect(request, subprotocols=["bokeh", session])


@beside(partial(new_site, dashboard=True))
async def test_nothing_comes_without_the_token(site: Site, token: str) -> None:
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
            "/distrain/v1/jobs?token=x", method=method, allow_nonstandard_methods=True
        )
        assert answer.code == 401, method
    html = {"Accept": "text/html,*/*"}
    form = await site.get('/distrain?token=wrong&job="><b>', headers=html)
    assert form.code == 401
    assert "form-action 'self'" in form.headers["Content-Security-Policy"]
    assert b'name="job" value="&quot;&gt;&lt;b&gt;"' in form.body, "the form keeps the rest"
    assert b"This token is wrong" in form.body
    assert b'value="wrong"' not in form.body
    assert (await site.get("/health")).body == b"ok"
    with pytest.raises(HTTPClientError, match="401"):
        await websocket(site, await load_page(site), {})


@beside(partial(new_site, dashboard=True))
async def test_everything_comes_with_the_token(site: Site, token: str) -> None:
    site.submit("a")
    for path in ("/distrain/v1/jobs/a", "/metrics", "/info/main/workers.html"):
        answer = await site.get(path, headers=BEARER)
        assert answer.code == 200, path
    session = await load_page(site)
    connection = await websocket(site, session, BEARER)
    assert await connection.read_message()
    connection.close()
    welcome = await site.get("/distrain/v1/jobs?x=1&token=s3cret%20token/%2B?~&y=2")
    assert (welcome.code, welcome.headers["Location"]) == (302, "./jobs?x=1&y=2")
    cookie = welcome.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax"} < set(re.split("; ", cookie))
    assert "Secure" not in cookie
    headers = {"X-Forwarded-Proto": "https"}
    safe = await site.get("/status?token=%20s3cret%20token/%2B?~%0A", headers=headers)
    assert "Secure" in safe.headers["Set-Cookie"], "over https the cookie stays there"
    assert "s3cret" not in cookie
    by_cookie = {"Cookie": cookie.partition(";")[0]}
    assert (await site.get("/distrain/v1/jobs", headers=by_cookie)).code == 200
    connection = await websocket(site, session, by_cookie)
    assert await connection.read_message()
    connection.close()


def test_a_token_in_a_file_guards_and_a_missing_file_never_opens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording: Any
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    with pytest.raises(ClusterError):
        install_access()
    for given in (
        " \n",
        "x",
        "x" * (MIN_LENGTH - 1) + "\n",
        "pässwörter-sind-lang",
        "two\nlines-of",
    ):
        file.write_text(given)
        with pytest.raises(ClusterError) as caught:
            install_access()
        assert given.strip() not in str(caught.value) or len(given.strip()) < 2
        wording(caught.value)
    file.write_text(f" {TOKEN}\r\n")
    assert token_of_environment() == TOKEN

    @beside(new_site)
    async def story(site: Site) -> None:
        assert (await site.get("/distrain/v1/jobs")).code == 401
        assert (await site.get("/distrain/v1/jobs", headers=BEARER)).code == 200

    story()
    monkeypatch.setenv(TOKEN_VARIABLE, "another-token-of-its-own")
    assert token_of_environment() == "another-token-of-its-own"


@beside(partial(new_site, dashboard=True))
async def test_a_page_of_another_site_gets_no_websocket(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = site.url.partition("//")[2]
    session = await load_page(site)
    same = {"Origin": site.url}
    behind_a_proxy = {"Origin": "https://dask.example", "X-Forwarded-Host": "dask.example"}
    for headers in ({}, same, behind_a_proxy):
        connection = await websocket(site, session, headers)
        assert await connection.read_message()
        connection.close()
    for origin in ("http://evil.example", "null", f"http://evil.{own}", "http://127.0.0.1:1"):
        with pytest.raises(HTTPClientError, match="403"):
            await websocket(site, session, {"Origin": origin})
    monkeypatch.setenv("BOKEH_ALLOW_WS_ORIGIN", "evil.example")
    connection = await websocket(site, session, {"Origin": "http://evil.example"})
    connection.close()


def test_odd_cookies_and_those_of_other_tokens_are_no_token() -> None:
    guard, other = Guard(TOKEN), Guard("another-token")
    theirs = f"{other.cookie_name}={other.cookie_value}"
    for cookie in ("", "a=b; c", "distrain-x=é", "=", ";;;", "a" * 10_000, theirs):
        for sent in (cookie, f"{guard.cookie_name}={cookie}"):
            assert not guard.is_authorised(HTTPHeaders({"Cookie": sent}))
