"""Clients that take nothing in, or that send requests without an end, at the server of the API."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from api_world import served
from event_streams import stream_of
from live_service import FAST, LiveService
from service_store import UNLIMITED
from waiting import until

from distrain.service.api.app import make_app
from distrain.service.api.streams import server_sent_events as live
from distrain.service.process import api_process
from distrain.service.process.api_process import _config, _Server
from distrain.service.settings import Settings
from distrain.service.store.store import migrate, open_store

pytestmark = pytest.mark.slow


@contextmanager
def process_of(folder: Path) -> Iterator[LiveService]:
    """The API as its process serves it, in a thread."""
    limits = FAST.model_copy(update={"streams_per_token": 100})
    settings = Settings(data_dir=folder / "data", limits=limits)
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", UNLIMITED)
        app = make_app(store, settings)

        def let_go() -> None:
            app.state.waiting.stop()
            app.state.streams.stop()

        app.state.server = _Server(_config(app, settings), lambda: None, let_go)
        with served(app, app.state.server, let_go, send_bytes=4096) as url:  # stuck sooner
            yield LiveService(url, store, folder, app)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with process_of(tmp_path_factory.mktemp("slow")) as service:
        yield service


def connected(service: LiveService) -> socket.socket:
    port = int(service.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def until_closed(one: socket.socket) -> bytes:
    """All that comes before the other side ends a connection."""
    came = b""
    while True:
        try:
            piece = one.recv(65536)
        except ConnectionResetError:
            return came
        if not piece:
            return came
        came += piece


def test_requests_that_do_not_come_to_an_end_are_ended_and_hold_up_nobody(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_process, "HEAD_S", 2.0)
    monkeypatch.setattr("distrain.service.api.guards.BODY_S", 2.0)
    token = service.token("alice").label
    begun = f"POST /v1/tokens HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    body = "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    kinds = ["", "GET /v1/me HTT", begun, begun + body]
    with ExitStack() as stack, service.client() as client:
        slow = [stack.enter_context(connected(service)) for _ in range(20)]
        for number, one in enumerate(slow):
            one.sendall(kinds[number % len(kinds)].encode())
        assert client.get("/v1/me").status_code == 200
        again = stack.enter_context(connected(service))  # a second request after a good one
        again.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert again.recv(100).startswith(b"HTTP/1.1 200")
        again.sendall(b"GET /livez HTT")
        for number, one in enumerate(slow):
            came = until_closed(one)
            if number % len(kinds) == 3:
                assert came.startswith(b"HTTP/1.1 400")
                assert b"the body did not come" in came
            else:
                assert came == b""
        until_closed(again)
        assert client.get("/v1/me").status_code == 200


@pytest.mark.parametrize(
    "begun",
    [
        "GET /livez HTTP/1.1\r\nHost: a\r\nX-Long: ",
        "POST /v1/tokens HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ",
    ],
    ids=["head", "trailer"],
)
def test_a_header_without_an_end_is_cut_before_it_fills_memory(
    service: LiveService, begun: str
) -> None:
    most = api_process.REQUEST_BYTES + 2**26  # what the kernels' buffers may take besides
    sent = 0
    with connected(service) as one, service.client() as client:
        one.sendall(begun.encode())
        with suppress(ConnectionError):
            while sent < most:
                one.sendall(b"a" * 2**16)
                sent += 2**16
        assert client.get("/v1/me").status_code == 200
    assert sent < most


def test_of_connections_that_ask_for_nothing_the_oldest_make_room(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_process, "most_idle", lambda: 20)
    with ExitStack() as stack, service.client() as client:
        idle = [stack.enter_context(connected(service)) for _ in range(60)]
        for one in idle[:30]:
            assert until_closed(one) == b""
        assert client.get("/v1/me").status_code == 200
        last = idle[-1]
        last.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert last.recv(100).startswith(b"HTTP/1.1 200")


def test_a_follower_that_reads_nothing_is_cut_and_goes_on_from_its_cursor(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SEND_S", 1.0)
    job = service.job()
    service.change(job, state="running", phase="handed_over", attempt=1)
    first = service.store.last_seq()
    token = service.token("alice").label
    path = f"/v1/jobs/{job.id}/events"
    streams = service.app.state.streams
    head = f"GET {path}?after={first} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(60)
        host, port = service.url.removeprefix("http://").split(":")
        one.connect((host, int(port)))
        one.sendall(head.encode())
        until(lambda: sum(streams.open.values()) == 1)
        told = 0
        while sum(streams.open.values()):  # until no buffer takes more, and SEND_S after that
            told += 1
            service.change(job, message=f"{told} " + "m" * 8000)
            assert told < 5000
        came = until_closed(one)
    assert b"event: end" not in came
    # A cursor is the id of a whole frame, behind which there is an empty line.
    whole = came[: came.rindex(b"\n\n")]
    ids = [int(number) for number in re.findall(rb"^id: (\d+)$", whole, re.M)]
    assert len(ids) < told
    service.end(job)
    with service.client() as client:
        cursor = ids[-1] if ids else first
        with stream_of(client, path, after=cursor) as events:
            ids += [event.id for event in events if event.kind == "job.state"]
    assert ids == list(range(first + 1, first + told + 2))


def test_the_end_of_a_process_waits_for_no_stream_and_no_idle_connection(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(process_of(tmp_path))
        job = service.job()
        client = stack.enter_context(service.client())
        path = f"/v1/jobs/{job.id}/events"
        streams = [stack.enter_context(stream_of(client, path)) for _ in range(10)]
        for events in streams:
            next(events)
        idle = [stack.enter_context(connected(service)) for _ in range(40)]
        for one in idle:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        for one in idle:
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        service.app.state.server.should_exit = True  # as SIGTERM's handler does
        for one in idle:
            until_closed(one)
        assert [list(events) for events in streams] == [[]] * 10
