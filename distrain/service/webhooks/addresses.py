"""The addresses that a webhook may reach: public ones, and those that the operator allows.

A name is resolved once, and the connection goes to the address that was looked at: a name that
changes its address in between changes nothing.
"""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from distrain.errors import InputError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_MOST_LETTERS = 2048
_HINT = "The operator allows others by `webhooks.allow_private` of serve.yaml."


@dataclass(frozen=True)
class Place:
    is_tls: bool
    host: str
    address: str  # of `host`, looked up and allowed
    port: int
    target: str  # path and query


def place_of(url: str, allow_private: Collection[str] = ()) -> Place:
    """The target of a webhook's URL; blocks while its name is resolved.

    Addresses of hosts and networks in `allow_private` need not be public. InputError: the URL
    cannot be used, or no address is allowed.
    """
    is_tls, host, port, target = _parts(url)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError("the webhook's host has no address", hint="Check its name.") from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        if not is_allowed(host, address, allow_private):
            raise InputError("the webhook's host has an address that is not public", hint=_HINT)
    return Place(is_tls, host, addresses[0], port, target)


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
