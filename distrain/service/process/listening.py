"""The socket of the API: bound by the supervisor, so that it stays when an API process dies.

Connections that come meanwhile wait in its queue for the next process.
"""

import errno
import os
import socket
from pathlib import Path

from distrain.errors import ClusterError, OutputError
from distrain.service.settings import Listen

BACKLOG = 1024
SOCKET_MODE = 0o660


def bind(listen: Listen) -> socket.socket:
    """A listening socket by the settings; port 0 takes a free one (ClusterError, OutputError)."""
    if listen.unix_socket is not None:
        return _bind_unix(listen.unix_socket)
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM
        )
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ClusterError(
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}",
            hint="Another program has the port: choose another --port, or listen.port."
            if error.errno == errno.EADDRINUSE
            else "Check listen.host and listen.port.",
        ) from error
    return bound


def url_of(listen: Listen, bound: socket.socket) -> str:
    """The address for people, with the port that the socket really has."""
    if listen.unix_socket is not None or listen.public_url:
        return listen.url
    return listen.model_copy(update={"port": bound.getsockname()[1]}).url


def _bind_unix(path: Path) -> socket.socket:
    if path.exists() and _answers(path):
        raise ClusterError(
            "another program listens on the Unix socket",
            where={"socket": str(path)},
            hint="Stop it, or choose another listen.unix_socket.",
        )
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
        os.chmod(path, SOCKET_MODE)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OutputError(
            f"cannot make the Unix socket: {error.strerror or error}",
            where={"socket": str(path)},
            hint="Its folder must exist and be writable; its path has at most 107 characters.",
        ) from error
    return bound


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
