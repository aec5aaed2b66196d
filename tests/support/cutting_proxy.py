"""A proxy of bytes that breaks connections in the midst of answers."""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class CuttingProxy:
    """Passes bytes to a server and back; the answers of some connections it cuts at any byte.

    Args:
        target: The server's URL.
        cuts: How many connections to cut.
        most_bytes: Each is cut after fewer bytes of answers than that.

    Attributes:
        done: How many were cut so far.
    """

    def __init__(self, target: str, cuts: int, most_bytes: int, seed: int = 7):
        address = urlsplit(target)
        self.target = (address.hostname or "", address.port or 80)
        self.cuts, self.done = cuts, 0
        self.most_bytes, self._draw = most_bytes, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Take connections until `stop`."""
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                thread = threading.Thread(target=self._connection, args=(near,))
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """End all connections, and their threads."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _connection(self, near: socket.socket) -> None:
        with near, socket.create_connection(self.target, 10) as far:
            with self._lock:
                self._open |= {near, far}
                left = self._draw.randrange(self.most_bytes) if self.done < self.cuts else None
                self.done += left is not None
            up = threading.Thread(target=_pass, args=(near, far, None))
            up.start()
            if not _pass(far, near, left):
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for one in (near, far):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            up.join(10)
            with self._lock:
                self._open -= {near, far}


def _pass(source: socket.socket, to: socket.socket, left: int | None) -> bool:
    """Pass bytes on until the end; False: it was cut after `left` bytes."""
    with suppress(OSError):
        while chunk := source.recv(65536):
            if left is not None and len(chunk) >= left:
                to.sendall(chunk[:left])
                return False
            to.sendall(chunk)
            left = None if left is None else left - len(chunk)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)
    return True


@contextmanager
def cutting(target: str, cuts: int, most_bytes: int) -> Iterator[CuttingProxy]:
    """A proxy in front of a server until the end of the block."""
    proxy = CuttingProxy(target, cuts, most_bytes)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(10)
