"""Followers that read nothing, and the end of the API's server with streams, waits, connections."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from api_world import served
from event_streams import stream_of
from live_service import LiveService
from service_store import UNLIMITED
from waiting import until

from distrain.service.api.streams import server_sent_events as live
from distrain.service.process.api_server import ApiServer
from distrain.service.settings import Limits, Settings
from distrain.service.store.store import migrate, open_store
from distrain.service.values import Role

pytestmark = pytest.mark.slow


@contextmanager
def process_of(folder: Path) -> Iterator[LiveService]:
    """The API as its process serves it, in a thread."""
    settings = Settings(data_dir=folder / "data", limits=Limits(streams_per_token=100))
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", UNLIMITED)
        server = ApiServer(store, settings, lambda: None)
        server.app.state.server = server
        with served(server.app, server, send_bytes=4096) as url:  # stuck sooner
            yield LiveService(url, store, folder, server.app)


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


def test_a_follower_that_reads_nothing_is_cut_and_goes_on_from_its_cursor(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SEND_S", 1.0)
    job = service.job()
    service.change(job, state="running", phase="handed_over", attempt=1)
    first = service.store.last_seq()
    token = service.token("alice", Role.SUBMITTER).label
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
    # Megabytes come through small buffers now: a busy machine may need longer than 1 s for a page.
    monkeypatch.setattr(live, "SEND_S", 60.0)
    with service.client() as client:
        cursor = ids[-1] if ids else first
        with stream_of(client, path, after=cursor) as events:
            ids += [event.id for event in events if event.kind == "job.state"]
    assert ids == list(range(first + 1, first + told + 2))


def test_the_end_of_a_process_waits_for_no_stream_and_no_idle_connection(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(process_of(tmp_path))
        job = service.job()
        client = stack.enter_context(service.client())
        path = f"/v1/jobs/{job.id}/events"
        streams = [stack.enter_context(stream_of(client, path)) for _ in range(10)]
        for events in streams:
            next(events)
        server = service.app.state.server
        until(lambda: len(server.server_state.tasks) == len(streams))
        idle = [stack.enter_context(connected(service)) for _ in range(40)]
        for one in idle:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        for one in idle:
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        server.should_exit = True  # as SIGTERM's handler does
        for one in idle:
            until_closed(one)
        assert [list(events) for events in streams] == [[]] * 10
