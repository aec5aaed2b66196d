"""One POST to a webhook, within a time, without redirects."""

import hashlib
import hmac
import http.client
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from distrain.errors import InputError
from distrain.service.webhooks.addresses import Place, place_of
from distrain.version import __version__

TIMEOUT_S = 5.0
_MOST_ERROR = 200


@dataclass(frozen=True)
class Posted:
    status: int | None  # the HTTP status, if there was one
    error: str | None  # why it failed; `None`: the receiver has it


def send(
    url: str,
    secret: str,
    event_id: str,
    body: bytes,
    *,
    allow_private: Collection[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> Posted:
    """Sign an event, and send it to a webhook. Blocks."""
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"distrain/{__version__}",
        "Distrain-Event-Id": event_id or secrets.token_hex(8),
        "Distrain-Timestamp": timestamp,
        "Distrain-Signature": signature(secret, timestamp, body),
    }
    try:
        place = place_of(url, allow_private)
    except InputError as error:
        return Posted(None, error.message)
    return _post(place, headers, body, timeout_s)


def _post(place: Place, headers: dict[str, str], body: bytes, timeout_s: float) -> Posted:
    connection = _Connection(place, timeout_s)
    # A socket's own time limit begins anew with each byte: this one does not.
    timer = threading.Timer(timeout_s, connection.cut)
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", place.target, body, headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = connection.is_cut or isinstance(error, TimeoutError)
        why = f"no answer within {timeout_s:g} s" if late else _words(error)
        return Posted(None, why)
    finally:
        timer.cancel()
        connection.close()
    if 200 <= status < 300:
        return Posted(status, None)
    tail = "; redirects are not followed" if 300 <= status < 400 else ""
    return Posted(status, f"the receiver answered {status}{tail}")


def _words(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)[:_MOST_ERROR]


class _Connection(http.client.HTTPConnection):
    """A connection to the checked address, whatever the name has now."""

    def __init__(self, place: Place, timeout_s: float):
        host = f"[{place.host}]" if ":" in place.host else place.host
        super().__init__(host, place.port, timeout=timeout_s)
        self.default_port = 443 if place.is_tls else 80
        self._place, self._timeout_s = place, timeout_s
        self.is_cut = False

    def connect(self) -> None:
        place = self._place
        self.sock = socket.create_connection((place.address, place.port), self._timeout_s)
        if place.is_tls:
            self.sock = ssl.create_default_context().wrap_socket(
                self.sock, server_hostname=place.host, do_handshake_on_connect=False
            )
        if self.is_cut:
            raise TimeoutError
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def cut(self) -> None:
        self.is_cut = True
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own is for its own thread


def webhook_secret(key: bytes, webhook_id: str) -> str:
    """The secret with which a webhook's receiver checks signatures; nobody keeps it."""
    return hmac.new(key, f"webhook\0{webhook_id}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The value of `Distrain-Signature`.

    >>> signature("secret", "1700000000", b"{}")[:12]
    'v1=b8569b787'
    """
    signed = timestamp.encode() + b"." + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
