"""The client of a scheduler's routes: what it makes of answers, of none, and of strange ones."""

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from made_certificates import write_certificate
from scripted_service import Reply, ScriptedService

from distrain.errors import ClusterError
from distrain.jobs.api_answers import Job
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.world import Refused, Unreachable
from distrain.service.settings import TlsFiles

JOB = {
    **Job(id="a", name="clicks", state="running", attempt=2, num_ranks=4).model_dump(),
    "run_dir": "/runs/a",
    "service": "here",
    "first_attempt": 1,
    "step": 40,
}


def changes(**fields: Any) -> dict[str, Any]:
    return {
        "epoch": "e",
        "revision": 9,
        "more": True,
        "services": {"here": 3},
        "workers": {"total": 2, "usable": 2, "free": 1, "gpus": 0, "of_a_later_version": 1},
        "jobs": [{**JOB, **fields, "of_a_later_version": {}}],
        "of_a_later_version": [],
    }


def client_of(answer: Callable[[httpx2.Request], httpx2.Response]) -> SchedulerClient:
    return SchedulerClient(
        "http://scheduler:8787/", "secret", service="here", transport=httpx2.MockTransport(answer)
    )


def answering(status: int, document: Any) -> SchedulerClient:
    text = document if isinstance(document, str) else json.dumps(document)
    return client_of(lambda request: httpx2.Response(status, text=text))


def test_requests_take_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    scheduler = ScriptedService(lambda seen: Reply(200, changes()))
    with scheduler, SchedulerClient(scheduler.address, "secret", service="here") as client:
        assert client.changes().epoch == "e"


def test_an_answer_of_a_later_version_is_read() -> None:
    document = changes(state="hibernating")
    document["jobs"].append({**JOB, "id": "b"})
    with answering(200, document) as client:
        seen = client.changes(3, "e")
    first, second = seen.jobs
    assert (seen.epoch, seen.revision, seen.more) == ("e", 9, True)
    assert seen.workers.free == 1
    assert (first.state, first.is_final) == ("hibernating", False)
    assert (second.state, second.attempt, second.step) == ("running", 2, 40)


def test_requests_are_as_the_routes_want_them() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(201, json={**JOB, **changes()})

    with client_of(answer) as client:
        _, new = client.put("a", {"x": 1}, "/runs/a", first_attempt=2, epoch="e", priority=4)
        client.order("a", "cancel", {"why": "why", "grace_s": 5.0, "first_attempt": 2})
        client.order("a", "priority", {"priority": 6, "first_attempt": 2})
        client.changes(7, "e")
    assert new
    assert [(r.method, r.url.path) for r in sent] == [
        ("PUT", "/distrain/v1/jobs/a"),
        ("POST", "/distrain/v1/jobs/a/cancel"),
        ("PATCH", "/distrain/v1/jobs/a"),
        ("GET", "/distrain/v1/changes"),
    ]
    assert {r.headers["Authorization"] for r in sent} == {"Bearer secret"}
    bodies = [json.loads(r.content) for r in sent[:3]]
    assert all((b["service"], b["first_attempt"]) == ("here", 2) for b in bodies)
    assert bodies[0]["spec"] == {"x": 1}
    assert dict(sent[3].url.params) == {"since": "7", "epoch": "e"}


@pytest.mark.parametrize(
    ("status", "document", "code"),
    [
        (409, {"code": "epoch_changed", "detail": "e", "hint": "h", "epoch": "x"}, "epoch_changed"),
        (410, {"code": "ended", "detail": "e", "job": {"id": "a", "state": "x"}}, "ended"),
        (418, {"code": "of_a_later_version"}, "of_a_later_version"),
        (401, {"code": "unauthenticated"}, "unauthenticated"),
        (404, "<html>Not found</html>", "no_gateway"),
        (429, [], "http_429"),
    ],
)
def test_a_refusal_has_its_code(status: int, document: Any, code: str) -> None:
    with answering(status, document) as client, pytest.raises(Refused) as caught:
        client.changes()
    error = caught.value
    assert (error.status, error.code) == (status, code)
    assert (error.ended is not None) == (code == "ended")


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (200, "<html>Sign in to this network</html>"),
        (200, "[]"),
        (200, "[" * 100_000),
        (200, {}),
        (200, {**changes(), "jobs": [{}]}),
        (302, ""),
        (500, "Internal Server Error"),
        (502, {"code": "bad_gateway"}),
        (503, {"code": "starting"}),
    ],
)
def test_what_is_no_answer_leaves_the_outcome_open(status: int, document: Any) -> None:
    with answering(status, document) as client, pytest.raises(Unreachable):
        client.changes()


def _job(**values: Any) -> dict[str, Any]:
    document = changes()
    document["jobs"][0].update(values)
    return document


@pytest.mark.parametrize(
    "document",
    [
        json.dumps(_job(loss="X")).replace('"X"', "NaN"),
        changes(message="\ud800"),
        changes(attempt=2**31),
        {**changes(), "epoch": "\0"},
        {**changes(), "workers": {"free": 2**70}},
        _job(service={"a": 1}),
        _job(id="x" * 10_000),
        _job(id="a\0b"),
        changes(reason={"a": 1}),
        changes(message=[1]),
        changes(why_pending=7),
        changes(attempt="1"),
        changes(state={}),
        changes(state=None),
        {**changes(), "epoch": "e" * 10_000},
        {**changes(), "epoch": ["e"]},
        {**changes(), "revision": 2.5},
        {**changes(), "revision": -(2**70)},
        {**changes(), "workers": {"free": "many"}},
        {**changes(), "workers": []},
        {**changes(), "workers": ["x"]},
    ],
    ids=lambda document: str(document)[-60:],
)
def test_values_that_no_database_holds_come_no_further(document: Any) -> None:
    with answering(200, document) as client, pytest.raises(Unreachable):
        client.changes()


def test_characters_that_no_database_holds_and_texts_without_end_are_replaced() -> None:
    with answering(200, changes(message="a\0b \U0001f600", why_pending="w" * 10**6)) as client:
        (job,) = client.changes().jobs
    assert job.message == "a\ufffdb \U0001f600"
    assert len(job.why_pending) == 2000


def test_figures_that_are_no_numbers_are_not_known() -> None:
    sent = _job(step="<b>7</b>", loss=[[1]], auc=True, valid_auc=0.5, num_steps=2**70, eta_s="X")
    with answering(200, json.dumps(sent).replace('"X"', "1e999")) as client:
        (job,) = client.changes().jobs
    assert job.figures == {"valid_auc": 0.5}


def test_what_a_refusal_says_has_an_end() -> None:
    ended = {"id": "a", "state": "failed", "message": "m" * 10**6}
    document = {"code": "ended", "detail": "e" * 10**6, "job": ended}
    with answering(410, document) as client, pytest.raises(Refused) as caught:
        client.changes()
    assert len(caught.value.message) < 10_000
    assert caught.value.ended is not None
    assert len(caught.value.ended.message or "") < 10_000


def test_nobody_there() -> None:
    with (
        SchedulerClient("http://127.0.0.1:1", "secret", service="here") as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.changes()
    assert "secret" not in str(caught.value)


def test_tls_files_that_cannot_be_used_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(ClusterError):
        SchedulerClient("https://s", service="here", tls=TlsFiles(ca_file=tmp_path / "ca.pem"))


def test_tls_trusts_its_authority_and_shows_a_certificate(tmp_path: Path) -> None:
    """As Dask's server with `dashboard.tls` and an authority wants it."""
    certificate, key, _ = write_certificate(tmp_path, "scheduler", 2)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    whole = TlsFiles(ca_file=certificate, cert_file=certificate, key_file=key)
    with ScriptedService(lambda seen: Reply(200, changes()), tls=context) as server:
        with SchedulerClient(server.address, service="here", tls=whole) as client:
            assert client.changes().epoch == "e"
        for files in (None, TlsFiles(ca_file=certificate)):
            with (
                SchedulerClient(server.address, service="here", tls=files) as client,
                pytest.raises(Unreachable),
            ):
                client.changes()
