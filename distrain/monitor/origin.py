"""Which pages may open a websocket to a scheduler. Pure.

A browser sends a scheduler's cookie with a websocket that any page opens, so that a page of another
site could read the dashboard as its visitor. It also says which page asks, as `Origin`.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from tornado.httputil import HTTPHeaders


def is_foreign_websocket(headers: HTTPHeaders, allowed: Sequence[str] = ()) -> bool:
    """Whether this asks for a websocket on behalf of a page of another site.

    Args:
        headers: The request's. Without an `Origin` it comes from no browser's page.
        allowed: Hosts, with their ports, whose pages may do so all the same; with `*` as in file
            names.

    >>> asked = {"Upgrade": "websocket", "Host": "s:8787"}
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://s:8787"}))
    False
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://elsewhere"}))
    True
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://elsewhere"}), ["elsewhere"])
    False
    """
    origin = headers.get("Origin") or headers.get("Sec-Websocket-Origin")
    if origin is None or headers.get("Upgrade", "").lower() != "websocket":
        return False
    try:
        asking = urlsplit(origin).netloc.lower()
    except ValueError:
        return True
    # A proxy that replaces the host tells the one that was asked for; no page can set either.
    ours = [headers.get("Host", ""), *headers.get("X-Forwarded-Host", "").split(",")]
    if asking in {host.strip().lower() for host in ours} - {""}:
        return False
    return not any(fnmatchcase(asking, pattern.lower()) for pattern in allowed)
