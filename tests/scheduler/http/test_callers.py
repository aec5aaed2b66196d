"""Who may give orders: those with the token, or without one this machine's own programs."""

import json
from typing import Any

import pytest
from monitored import beside
from order_site import OrderSite, new_order_site, no_token as no_token
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from distrain.scheduler.http import handler as handler_module
from distrain.scheduler.http.access import why_refused
from distrain.workers.secrets import TOKEN_VARIABLE

TOKEN = "a-token-of-a-scheduler"
BODY = json.dumps({"service": "s", "first_attempt": 1})


def request(peer: str, host: str, method: str = "GET", **headers: str) -> HTTPServerRequest:
    class Connection:
        class context:
            remote_ip, protocol = peer, "http"

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTPServerRequest(
        start_line=RequestStartLine(method, "/distrain/v1/changes", "HTTP/1.1"),
        headers=HTTPHeaders({"Host": host, **named}),
        connection=Connection(),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("passes", "peer", "host", "headers"),
    [
        (True, "127.0.0.1", "127.0.0.1:8787", {}),
        (True, "::1", "[::1]:8787", {}),
        (True, "::ffff:127.0.0.1", "localhost:8787", {}),
        (False, "10.0.0.9", "10.0.0.1:8787", {}),
        (False, "10.0.0.9", "localhost:8787", {}),
        (False, "127.0.0.1", "rebound.example:8787", {}),
        (False, "127.0.0.1", "localhost:8787", {"X_Forwarded_For": "10.0.0.9"}),
        (False, "127.0.0.1", "localhost:8787", {"X_Forwarded_Host": "a"}),
        (False, "127.0.0.1", "localhost:8787", {"Forwarded": "for=10.0.0.9"}),
        (False, "127.0.0.1", "localhost:8787", {"X_Real_IP": "10.0.0.9"}),
        (False, "127.0.0.1", "localhost:8787", {"Via": "1.1 proxy"}),
        (False, "", "localhost:8787", {}),
        (False, "127.0.0.1", "[", {}),
    ],
)
def test_without_a_token_only_programs_of_this_machine_may(
    passes: bool, peer: str, host: str, headers: dict[str, str]
) -> None:
    trouble = why_refused(request(peer, host, **headers))
    assert (trouble is None) == passes
    if trouble is not None:
        assert (trouble.status, trouble.document["code"]) == (403, "no_token")


def test_with_a_token_a_foreign_page_may_read_but_give_no_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    origin = "http://elsewhere"
    assert why_refused(request("10.0.0.9", "s:8787", Origin=origin)) is None
    for method in ("PUT", "POST", "DELETE"):
        trouble = why_refused(request("10.0.0.9", "s:8787", method, Origin=origin))
        assert trouble is not None
        assert (trouble.status, trouble.document["code"]) == (403, "foreign_origin")
        assert why_refused(request("10.0.0.9", "s:8787", method, Origin="http://s:8787")) is None
        assert why_refused(request("10.0.0.9", "s:8787", method)) is None


BODIES = {
    "": "Invalid JSON",
    "[" * 100_000: "Invalid JSON",
    "[]": "an object",
    '{"service": "", "first_attempt": 1}': "service",
    '{"service": "s", "first_attempt": true}': "first_attempt",
    '{"service": "s", "first_attempt": 1, "grace_s": -1}': "grace_s",
}


@beside(new_order_site)
async def test_a_request_that_cannot_be_used_is_refused(
    site: OrderSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(body: str, **headers: str) -> tuple[int, dict[str, Any]]:
        path = "/distrain/v1/jobs/a/cancel"
        answer = await site.get(path, method="POST", body=body, headers=headers)
        return answer.code, json.loads(answer.body)

    for body, told in BODIES.items():
        code, document = await refused(body)
        assert (code, document["code"]) == (400, "bad_request"), body
        assert told in document["detail"]
    monkeypatch.setattr(handler_module, "MOST_BODY_BYTES", 1000)
    code, document = await refused("x" * 1001)
    assert (code, document["code"]) == (413, "too_large")
    code, document = await refused(BODY, Origin="http://elsewhere")
    assert (code, document["code"]) == (403, "foreign_origin")
