"""Opens the torch TCPStores through which the ranks of an attempt meet, on the scheduler's host."""

import errno
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from distrain.errors import ClusterError

PORTS = "DISTRAIN_RENDEZVOUS_PORTS"
"""The scheduler's environment variable that names the ports of the stores."""


def rendezvous_ports(environ: Mapping[str, str] = os.environ) -> range:
    """Return the ports that stores may use, from `DISTRAIN_RENDEZVOUS_PORTS`.

    Users set it to the ports that a firewall allows. If it is not set or empty, the range has only
    port 0, which means any free port.

    >>> rendezvous_ports({"DISTRAIN_RENDEZVOUS_PORTS": "29400-29499"})
    range(29400, 29500)
    >>> rendezvous_ports({})
    range(0, 1)

    Raises:
        ClusterError: The variable's value is not a range of ports.
    """
    text = environ.get(PORTS, "").strip()
    if not text:
        return range(1)
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise ClusterError(
            f"{PORTS} is {text!r}; it must be FIRST-LAST, two ports from 1024 to 65535",
            hint=f"Start the scheduler with {PORTS}=29400-29499, or without it for any free port.",
        )
    return range(first, last + 1)


class Stores:
    """Opens one scheduler's stores, at the ports of `rendezvous_ports`.

    Ports are used in turn, so that late ranks of the previous attempt do not reach the new store.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.ports = rendezvous_ports(environ)
        self._next = 0
        self._lock = threading.Lock()

    def open(self, host: str, listens_at: str = "") -> Any:
        """Return a new store at the next free port; arguments and errors as for `make_store`."""
        with self._lock:
            store = make_store(host, listens_at, beginning_at(self.ports, self._next))
            self._next = store.port - self.ports[0] + 1
        return store


def beginning_at(ports: range, index: int) -> list[int]:
    """Return all ports in order, from the port at `index` on, then from the first port on.

    >>> beginning_at(range(7, 10), 1)
    [8, 9, 7]
    """
    return [*ports[index:], *ports[:index]]


def make_store(host: str, listens_at: str = "", ports: Sequence[int] = (0,)) -> Any:
    """Return a new TCPStore for the ranks of an attempt.

    Args:
        host: The address at which ranks reach the store, which listens only on it.
        listens_at: The address to listen on if no interface has the address `host`, as behind
            address translation; "": all interfaces.
        ports: The first free one is used; 0 is any free port.

    Raises:
        ClusterError: All ports are in use.
    """
    from torch.distributed import TCPStore

    listener = listen_for_store(host, listens_at, ports)
    # The store gets a socket, which it owns from here on, since it would otherwise listen on all
    # interfaces.
    port = listener.getsockname()[1]
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def listen_for_store(host: str, listens_at: str, ports: Sequence[int]) -> socket.socket:
    """Return the listening socket of a store; parameters and errors are those of `make_store`."""
    try:
        listener = _listen_at_one_of(ports, host)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        listener = _listen_at_one_of(ports, listens_at)
    if listener is None:
        raise ClusterError(
            f"all ports of {PORTS} ({min(ports)}-{max(ports)}) are in use on the scheduler's host",
            where={"host": host},
            hint=f"Each running attempt uses one; start the scheduler with a wider {PORTS}. `ss "
            "-ltnp` there shows the processes that use them.",
        )
    return listener


def _listen_at_one_of(ports: Sequence[int], host: str) -> socket.socket | None:
    """Return a listening socket at the first free port; `None` if all are in use.

    Raises `OSError` for any other problem of a port, without trying the rest.
    """
    for port in ports:
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return None


def _listen(host: str, port: int) -> socket.socket:
    candidates = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = candidates[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if port:  # connections of an earlier store may linger there for a minute
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    return listener
