"""One POST to a webhook, to a public or allowed address, within a time, without redirects.

A name is resolved once, and the connection goes to the address that was looked at: a name that
changes its address in between changes nothing.
"""

import hashlib
import hmac
import http.client
import ipaddress
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from distrain.errors import InputError
from distrain.version import __version__

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_MOST_LETTERS = 2048
_HINT = "The operator allows others by `webhooks.allow_private` of serve.yaml."


@dataclass(frozen=True)
class WebhookTarget:
    is_tls: bool
    host: str
    address: str  # of `host`, looked up and allowed
    port: int
    target: str  # path and query


def place_of(url: str, allow_private: Collection[str] = ()) -> WebhookTarget:
    """The target of a webhook's URL; blocks while its name is resolved; raises InputError."""
    is_tls, host, port, target = _parts(url)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError("the webhook's host has no address", hint="Check its name.") from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        if not is_allowed(host, address, allow_private):
            raise InputError("the webhook's host has an address that is not public", hint=_HINT)
    return WebhookTarget(is_tls, host, addresses[0], port, target)


def _parts(url: str) -> tuple[bool, str, int, str]:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _MOST_LETTERS
    if scheme not in ("http", "https") or not host or port == 0 or not is_plain or "#" in url:
        raise InputError(
            "the webhook's URL cannot be used",
            hint="It is http://HOST/PATH or https://HOST/PATH, in ASCII and without a fragment.",
        )
    if parts.username is not None:
        raise InputError(
            "the webhook's URL has credentials",
            hint="Leave them out; the receiver checks the signature.",
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = scheme == "https"
    return is_tls, host, port or (443 if is_tls else 80), target


def is_allowed(host: str, address: str, allow_private: Collection[str]) -> bool:
    """Whether a host's address is public, or allowed by its name or network.

    >>> is_allowed("x", "93.184.216.34", ()), is_allowed("x", "::ffff:127.0.0.1", ())
    (True, False)
    >>> is_allowed("ci", "10.1.2.3", ["ci"]), is_allowed("x", "10.1.2.3", ["10.1.0.0/16"])
    (True, True)
    """
    if host.lower() in {entry.lower() for entry in allow_private}:
        return True
    one = _inner(ipaddress.ip_address(address.partition("%")[0]))
    networks = (ipaddress.ip_network(entry) for entry in allow_private if "/" in entry)
    if str(one) in allow_private or any(one in network for network in networks):
        return True
    is_local = one.is_multicast or one.is_reserved or one.is_unspecified or one.is_link_local
    return one.is_global and not is_local


def _inner(address: _Address) -> _Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    teredo = address.teredo[1] if address.teredo else None
    inner = address.ipv4_mapped or address.sixtofour or teredo
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


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


def _post(place: WebhookTarget, headers: dict[str, str], body: bytes, timeout_s: float) -> Posted:
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

    def __init__(self, place: WebhookTarget, timeout_s: float):
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
