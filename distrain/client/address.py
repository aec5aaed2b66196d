"""The address of a service, and the addresses that a token may be sent to."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from distrain.errors import InputError

_FORMS = "https://HOST[:PORT], http://127.0.0.1:PORT, or unix:/PATH/OF/SOCKET"


@dataclass(frozen=True)
class Address:
    text: str  # as people write it; what is stored and shown
    base_url: str  # what paths are appended to
    socket: Path | None = None  # the Unix socket, for `unix:`
    # whether nobody on the way reads what is sent: TLS, or this machine alone
    is_private: bool = True
    is_local: bool = True  # whether it is on this machine


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        InputError: It is none.

    >>> parse_address("https://jobs.example/distrain/").base_url
    'https://jobs.example/distrain'
    >>> parse_address("http://10.0.0.5:8686").is_private
    False
    """
    text = text.strip()
    if text.startswith("unix:"):
        return _socket_address(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(text, str(error)) from None
    if parts.username is not None or parts.password is not None:
        raise _no_address("https://...@" + host, "it holds a user name or a password")
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address(text, "it does not begin with https://, http:// or unix:")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise _no_address(text, "it holds a query, a fragment or a space")
    shown = f"[{host}]" if ":" in host else host
    url = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    is_local = _is_loopback(host)
    return Address(url, url, None, parts.scheme == "https" or is_local, is_local)


def _socket_address(text: str) -> Address:
    path = text.removeprefix("unix:")
    path = re.sub(r"^//(?=/)", "", path)  # unix:///path, as others write it
    if not path.startswith("/") or path.startswith("//"):
        raise _no_address(text, "the path of the socket is not absolute")
    return Address(f"unix:{path}", "http://localhost", Path(path))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_address(text: str, why: str) -> InputError:
    return InputError(f"{text!r} is not the address of a service: {why}", hint=f"Use {_FORMS}.")


def check_token(token: str | None, address: Address, *, plain_http: bool) -> None:
    """Refuse a token that cannot be one, or that others would read on its way; never name it."""
    if token is None:
        return
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise InputError(
            "the token is empty, or holds spaces or characters that no token has",
            where={"server": address.text},
            hint="`distrain login ADDRESS` asks for it, checks it and stores it.",
        )
    if not address.is_private and not plain_http:
        raise InputError(
            "a token is not sent over plain http: everybody on the way could read it",
            where={"server": address.text},
            hint="Use https://, or a tunnel to http://127.0.0.1:PORT. In a network that you trust, "
            "`distrain login --plain-http ADDRESS` or Client(plain_http=True) allows it.",
        )
