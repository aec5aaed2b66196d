"""A receiver of webhooks that answers as a test wants."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What came, and how it is answered.

    Attributes:
        answer: The status for a request; may block.
        got: Headers and bodies, in the order in which they came.
    """

    url: str = ""
    answer: Callable[[str], int] = lambda path: 200
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def ids(self, path: str = "/") -> list[str]:
        """The events' ids that came to a path."""
        return [headers["Distrain-Event-Id"] for at, headers, _ in list(self.got) if at == path]


@contextmanager
def receiving(answer: Callable[[str], int] = lambda path: 200) -> Iterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((self.path, dict(self.headers), body))
            status = receiver.answer(self.path)
            if status == 0:  # dies without an answer
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(holds: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait for a condition."""
    ends_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_s, "it never holds"
        time.sleep(0.01)
