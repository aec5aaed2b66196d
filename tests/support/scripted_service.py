"""A small HTTP server that answers by a script, badly if the script says so."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Seen:
    """A request."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any
    raw: bytes = b""


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        content: JSON values, or bytes.
        cut_after: Send this many bytes of the content, and then break the connection.
        chunks: In place of a content of known length: chunks, flushed one by one.
        ends: Whether the chunks end as HTTP wants it, or the connection breaks.
        drop: Break the connection without any answer.
    """

    status: int = 200
    content: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    chunks: Iterable[bytes] | None = None
    ends: bool = True
    drop: bool = False


def problem(status: int, code: str, **more: Any) -> Reply:
    """A refusal as the service words it."""
    document = {"status": status, "code": code, "title": code, **more}
    return Reply(status, document, {"Content-Type": "application/problem+json"})


class ScriptedService:
    """Serves `answer(request)` on a port of loopback, or on a Unix socket."""

    def __init__(
        self,
        answer: Callable[[Seen], Reply],
        unix_socket: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        self.answer = answer
        self.seen: list[Seen] = []
        self._stopped = threading.Event()
        kind = _UnixServer if unix_socket else ThreadingHTTPServer
        place: Any = str(unix_socket) if unix_socket else ("127.0.0.1", 0)
        self._server = kind(place, _handler_of(self))
        self._server.daemon_threads = False
        self._server.block_on_close = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.address = (
            f"unix:{unix_socket}"
            if unix_socket
            else f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def until_stopped(self) -> Iterator[bytes]:
        """Chunks of which there never is one: a stream that stands still."""
        self._stopped.wait(60)
        yield from ()

    def paths(self, method: str = "GET") -> list[str]:
        """What was asked for."""
        return [seen.path for seen in self.seen if seen.method == method]


class _UnixServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0


def _handler_of(service: ScriptedService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, BrokenPipeError):
                self.close_connection = True

        def _serve(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            is_json = raw[:1] in (b"{", b"[")
            body = json.loads(raw) if is_json else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, url.path, dict(parse_qsl(url.query)), headers, body, raw)
            service.seen.append(seen)
            self._reply(service.answer(seen))

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve

        def _reply(self, reply: Reply) -> None:
            if reply.drop:
                self._break()
                return
            self.close_connection = True
            self.send_response(reply.status)
            if reply.chunks is not None:
                self._stream(reply, reply.chunks)
                return
            is_bytes = isinstance(reply.content, bytes)
            content = reply.content if is_bytes else json.dumps(reply.content).encode()
            known = {name.lower() for name in reply.headers}
            if "content-type" not in known:
                kind = "application/octet-stream" if is_bytes else "application/json"
                self.send_header("Content-Type", kind)
            self._end_headers(reply, {"Content-Length": str(len(content)), "Connection": "close"})
            self.wfile.write(content[: reply.cut_after])
            if reply.cut_after is not None and reply.cut_after < len(content):
                self._break(hard=False)

        def _stream(self, reply: Reply, chunks: Iterable[bytes]) -> None:
            self._end_headers(reply, {"Transfer-Encoding": "chunked", "Connection": "close"})
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            if reply.ends:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self._break(hard=False)

        def _end_headers(self, reply: Reply, more: dict[str, str]) -> None:
            for name, value in {**reply.headers, **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()

        def _break(self, hard: bool = True) -> None:
            self.close_connection = True
            if hard:  # a reset, as of a process that was killed
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def address_string(self) -> str:
            return "client"

    return Handler
