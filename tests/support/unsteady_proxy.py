"""An HTTP proxy that does to its clients what networks and overloaded object stores do."""

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class UnsteadyProxy(ThreadingHTTPServer):
    """Passes requests on to a server, but not always. What it does, it decides by their number.

    Args:
        target: The server's URL.

    Attributes:
        reset_every: Each so manieth request ends in a reset, in turn before the answer and in the
            midst of its body; 0 resets none.
        burst: Of each `burst_every` requests the last so many are answered 503.
        away_from: The request with which it goes away; `None` for never.
        away_s: For how long: until then it resets every connection.
        lost: The answers to the next requests with these texts (such as `POST` and a part of the
            path) are lost, each once: the server does what was asked for.
        done: How often it did what, by name.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: str):
        super().__init__(("127.0.0.1", 0), _Handler)
        address = urlsplit(target)
        self.target = (address.hostname or "", address.port or 80)
        self.reset_every = self.burst = self.burst_every = 0
        self.away_from: int | None = None
        self.away_s = 0.0
        self.lost: list[tuple[str, str]] = []
        self.done: Counter[str] = Counter()
        self._back_s: float | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fate(self, method: str, path: str) -> str:
        """What becomes of the next request."""
        with self._lock:
            self.done["requests"] += 1
            fate = self._fate(self.done["requests"])
            for wanted in self.lost:
                if wanted[0] == method and wanted[1] in path:
                    self.lost.remove(wanted)
                    fate = "lost"
                    break
            self.done[fate] += 1
            return fate

    def _fate(self, number: int) -> str:
        if self._back_s is None and self.away_from is not None and number >= self.away_from:
            self._back_s = time.monotonic() + self.away_s
        if self._back_s is not None and time.monotonic() < self._back_s:
            return "away"
        if self.reset_every and not number % self.reset_every:
            return "cut" if number // self.reset_every % 2 else "reset"
        if self.burst_every and number % self.burst_every >= self.burst_every - self.burst:
            return "slow down"
        return "passed"

    def handle_error(self, *_: Any) -> None:
        """Clients that go away are none of its business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: UnsteadyProxy

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.server.fate(self.command, self.path):
            case "away" | "reset":
                self._reset()
            case "slow down":
                self._send(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            case "lost":
                self._ask(body)
                self._reset()
            case fate:
                status, headers, content = self._ask(body)
                self._send(status, headers, content, cut=fate == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.server.target, timeout=30)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _send(
        self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False
    ) -> None:
        own = {"transfer-encoding", "connection", "date", "server"}
        kept = [(name, value) for name, value in headers if name.lower() not in own]
        if self.command != "HEAD":
            kept = [(name, value) for name, value in kept if name.lower() != "content-length"]
            kept.append(("Content-Length", str(len(content))))
        self.send_response(status)
        for name, value in kept:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return self._reset() if cut else None
        self.wfile.write(content[: len(content) // 2] if cut else content)
        return self._reset() if cut else None

    def _reset(self) -> None:
        """End the connection with a reset, as a router or a server that dies does."""
        self.close_connection = True
        self.wfile.flush()
        now = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def unsteady(target: str) -> Iterator[UnsteadyProxy]:
    """A proxy in front of a server; steady until it is told otherwise."""
    proxy = UnsteadyProxy(target)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)
