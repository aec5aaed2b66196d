"""Who may give orders over HTTP: those with the token; without one, only this machine's programs.

`distrain.monitor` asks for the token before any of these routes, where the environment has one.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

from distrain.cluster import TOKEN_VARIABLE, token_of_environment
from distrain.gateway.refusal import Refusal
from distrain.monitor import is_foreign_page

_OF_PROXIES = ("Forwarded", "Via", "X-Real-Ip")
_PREFIX_OF_PROXIES = "X-Forwarded-"
_READING = ("GET", "HEAD")


def trouble_with(request: HTTPServerRequest) -> Refusal | None:
    """Why a request is refused; `None` if it may pass."""
    if token_of_environment() is None and not _is_of_this_machine(request):
        return Refusal(
            403,
            "no_token",
            "the scheduler has no token, so it takes orders from its own machine alone",
            f"Start it with {TOKEN_VARIABLE} in its environment, and send that as "
            "`Authorization: Bearer TOKEN`.",
        )
    if request.method not in _READING and is_foreign_page(request.headers):
        origin = request.headers.get("Origin", "")
        return Refusal(
            403,
            "foreign_origin",
            f"a page of another site, {origin}, gives an order",
            "Programs send no Origin; behind a proxy, pass the browser's Host on.",
        )
    return None


def _is_of_this_machine(request: HTTPServerRequest) -> bool:
    """Whether a request comes from this machine, not through a proxy, nor by a foreign name.

    A page of another site may give its own name this machine's address; the browser tells that name
    as the host.
    """
    names = list(request.headers)
    if any(name in _OF_PROXIES or name.startswith(_PREFIX_OF_PROXIES) for name in names):
        return False
    try:
        host = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return False
    return _is_loopback(request.remote_ip or "") and (host == "localhost" or _is_loopback(host))


def _is_loopback(address: str) -> bool:
    """Whether this is an address of the machine itself.

    >>> _is_loopback("127.0.0.2"), _is_loopback("::1"), _is_loopback("10.0.0.1"), _is_loopback("x")
    (True, True, False, False)
    """
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
