"""Ranges of objects by signed URLs: from a real HTTP server, and from s3fs where that fails."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.storage.ranges import Connections, SignedRanges, signed_ranges

CONTENT = bytes(range(256)) * 40


class Store(ThreadingHTTPServer):
    """One object with the ETag `"1"`; URLs are good until `expired`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.num_signed = 0
        self.expired = 0
        self.status = 206
        self.cut_bytes = 0
        self.asked: list[str] = []

    def sign(self, path: str, expiration: int) -> str:
        self.num_signed += 1
        return f"http://127.0.0.1:{self.server_port}/{path}?signature={self.num_signed}"


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        store = self.server
        store.asked.append(self.path)
        begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        status = store.status
        if int(self.path.rpartition("=")[2]) <= store.expired:
            status = 403
        elif self.headers["If-Match"] != '"1"':
            status = 412
        body = CONTENT[begin : end + 1] if status == 206 else b"<Error/>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - store.cut_bytes])
        if store.cut_bytes:
            self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections(2)
    yield made
    made.close()


def opened(store: Store, connections: Connections, etag: str = '"1"') -> SignedRanges:
    filesystem = SimpleNamespace(protocol=("s3", "s3a"), sign=store.sign)
    handle = SimpleNamespace(fs=filesystem, path="bucket/a", details={"ETag": etag, "size": 1})
    found = signed_ranges(handle, connections)
    assert found is not None
    return found


@pytest.mark.slow
def test_threads_get_their_ranges_by_one_url(store: Store, connections: Connections) -> None:
    ranges = opened(store, connections)
    spans = [(begin, begin + 100 + begin % 7) for begin in range(0, 9_000, 83)]
    with ThreadPoolExecutor(3) as pool:
        found = [*pool.map(lambda span: ranges.read(*span), spans)]
    assert found == [CONTENT[begin:end] for begin, end in spans]
    assert store.num_signed == 1


def test_a_url_that_has_expired_is_made_anew(store: Store, connections: Connections) -> None:
    ranges = opened(store, connections)
    assert ranges.read(0, 4) == CONTENT[:4]
    store.expired = 1
    assert ranges.read(4, 8) is None
    assert ranges.read(4, 8) == CONTENT[4:8]
    assert store.num_signed == 2


def test_an_old_url_is_not_used_where_no_other_can_be_signed(
    store: Store, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("distrain.storage.ranges.monotonic", lambda: now_s)
    ranges = opened(store, connections)
    assert ranges.read(0, 4) == CONTENT[:4]
    now_s += 1801
    with monkeypatch.context() as context:
        context.setattr(ranges._filesystem, "sign", lambda *_, **__: 1 / 0)
        assert ranges.read(0, 4) is None
    now_s += 61
    assert ranges.read(0, 4) == CONTENT[:4]
    assert [url.rpartition("=")[2] for url in store.asked] == ["1", "2"]


@pytest.mark.parametrize("status", [200, 307, 403, 404, 503])
def test_a_store_that_refuses_is_left_alone_for_a_while(
    store: Store, connections: Connections, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = opened(store, connections)
    store.status = status
    assert ranges.read(0, 4) is None
    store.status = 206
    assert ranges.read(0, 4) is None
    assert len(store.asked) == 1
    monkeypatch.setattr("distrain.storage.ranges.monotonic", lambda: 1e9)
    assert ranges.read(0, 4) == CONTENT[:4]


def test_an_object_that_was_written_anew_gives_nothing(
    store: Store, connections: Connections
) -> None:
    assert opened(store, connections, '"0"').read(0, 4) is None


def test_what_is_cut_off_is_nothing_and_disturbs_no_other_range(
    store: Store, connections: Connections
) -> None:
    ranges = opened(store, connections)
    assert ranges.read(0, 4) == CONTENT[:4]
    store.cut_bytes = 3
    assert ranges.read(100, 200) is None
    store.cut_bytes = 0
    assert ranges.read(300, 400) == CONTENT[300:400]


def test_what_wants_a_proxy_is_left_to_s3fs(
    store: Store, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    monkeypatch.setenv("no_proxy", "elsewhere")
    assert opened(store, connections).read(0, 4) is None
    assert store.asked == []


def test_no_answer_and_no_signature_give_nothing(connections: Connections) -> None:
    def fails(path: str, expiration: int) -> str:
        raise NotImplementedError

    for sign in (fails, lambda *_, **__: "http://127.0.0.1:9/a"):
        filesystem: Any = SimpleNamespace(protocol="s3", sign=sign)
        handle = SimpleNamespace(fs=filesystem, path="a", details={"ETag": '"1"'})
        ranges = signed_ranges(handle, connections)
        assert ranges is not None
        assert ranges.read(0, 4) is None


def test_other_files_are_read_as_before_and_it_can_be_turned_off(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = SimpleNamespace(protocol="s3")
    for handle in (
        SimpleNamespace(fs=SimpleNamespace(protocol=("gs", "gcs")), details={"ETag": '"1"'}),
        SimpleNamespace(fs=s3, details={"size": 4}),
        SimpleNamespace(fs=s3, details=None),
        object(),
    ):
        assert signed_ranges(handle, connections) is None
    good = SimpleNamespace(fs=s3, path="a", details={"ETag": "1"})
    assert signed_ranges(good, connections)
    monkeypatch.setenv("DISTRAIN_SIGNED_URLS", "0")
    assert signed_ranges(good, connections) is None
