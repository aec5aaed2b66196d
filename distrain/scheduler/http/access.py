"""Controls the access to a scheduler over HTTP: pages, JSON, metrics, websockets, orders.

*Orders* are the requests that change jobs, and those that only a job service or an operator makes
(`routes.Route.is_order`).

Dask has no authentication. This module changes the Tornado application that routes the requests to
Dask's servers, so that it requires the environment's token, if there is one. Only `/health` stays
open, for probes. With or without a token, websockets opened by pages of other sites are refused.
Without a token, orders are accepted only from programs on the scheduler's own machine.
"""

import hmac
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import dask
from distributed import node
from distributed.http.routing import RoutingApplication
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from distrain.jobs.addresses import is_loopback
from distrain.scheduler.http.bodies import Refusal
from distrain.scheduler.http.token_form import HEADERS, PARAMETER, token_form
from distrain.workers.secrets import TOKEN_VARIABLE, token_of_environment

_OPEN_PATHS = frozenset({"/health"})
_OF_PROXIES = ("Forwarded", "Via", "X-Real-Ip")
_PREFIX_OF_PROXIES = "X-Forwarded-"
_READING = ("GET", "HEAD")


def install_access() -> None:
    """Make Dask's HTTP servers that start later in this process check the access.

    They refuse websockets of other sites' pages and, if the environment has a token, requests
    without the token. Raises `ClusterError` if the environment's token cannot be used.
    """
    token_of_environment()
    node.RoutingApplication = _guarded


def guard_running(application: RoutingApplication) -> None:
    """Make a running HTTP server check the access as in `install_access`, unless it does already.

    `application` is the server's Tornado application. Raises `ClusterError` if the environment's
    token cannot be used.
    """
    token = token_of_environment()
    if "find_handler" not in vars(application):
        # The server has a reference to this object, so only its method is replaced.
        guard = Guard(token) if token else None
        application.find_handler = partial(
            _find_handler, application, guard, application.find_handler
        )


class Guard:
    """Checks the token of requests, and makes the cookie that replaces it in browsers."""

    def __init__(self, token: str):
        self._token = token.encode()
        # A browser stores this instead of the token. The name depends on the token, because the
        # schedulers of a host share their cookies across ports.
        digest = hmac.new(self._token, b"distrain dashboard", "sha256").hexdigest()
        self.cookie_name, self.cookie_value = f"distrain-{digest[:8]}", digest[8:]

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)

    def is_authorised(self, headers: HTTPHeaders) -> bool:
        """Return True if a request's headers have the token or the cookie."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(token.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("Cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(self.cookie_name)
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self.cookie_value.encode()
        )

    def has_token_in_url(self, request: HTTPServerRequest) -> bool:
        query = parse_qsl(request.query, errors="replace")
        return any(name == PARAMETER and self.is_token(value.strip()) for name, value in query)


def _guarded(*args: Any, **options: Any) -> RoutingApplication:
    """Return a new router of Dask, made with these arguments, that checks the access."""
    application = RoutingApplication(*args, **options)
    guard_running(application)
    return application


def _find_handler(
    application: RoutingApplication,
    guard: Guard | None,
    find_handler: Callable[..., Any],
    request: HTTPServerRequest,
    **options: Any,
) -> Any:
    def refused(status: int, code: str, detail: str, hint: str) -> Any:
        refusal = Refusal(status, code, detail, hint)
        return application.get_handler_delegate(request, _Refused, {"refusal": refusal})

    if "Upgrade" in request.headers and is_foreign_websocket(request.headers, _allowed_origins()):
        origin = request.headers.get("Origin", "")
        return refused(
            403,
            "foreign_origin",
            f"a page of another site, {origin}, requests this page's websocket",
            "Behind a proxy, forward the browser's Host or X-Forwarded-Host; to allow pages of "
            "other sites, set BOKEH_ALLOW_WS_ORIGIN to HOST:PORT.",
        )
    if guard is None or request.path in _OPEN_PATHS or guard.is_authorised(request.headers):
        return find_handler(request, **options)
    if request.method == "GET" and guard.has_token_in_url(request):
        return application.get_handler_delegate(request, _Welcome, {"guard": guard})
    return refused(
        401,
        "unauthenticated",
        "the token is missing or wrong",
        "Send it as `Authorization: Bearer TOKEN`; in a browser open the page with "
        f"?{PARAMETER}=TOKEN once.",
    )


def _allowed_origins() -> Sequence[str]:
    """Return the hosts whose pages may open websockets by Bokeh's and Dask's settings.

    Dask's default `*` is left out.
    """
    from bokeh.settings import settings

    of_bokeh: list[str] = settings.allowed_ws_origin()
    key = "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin"
    of_dask: list[str] = dask.config.get(key, [])
    return [*of_bokeh, *(host for host in of_dask if host != "*")]


class _Refused(web.RequestHandler):
    def initialize(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def prepare(self) -> None:
        self.set_status(self._refusal.status)
        if self._refusal.status == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="distrain"')
            if "text/html" in self.request.headers.get("Accept", ""):
                for name, value in HEADERS.items():
                    self.set_header(name, value)
                self.finish(token_form(parse_qsl(self.request.query, errors="replace")))
                return
        self.finish(self._refusal.document)

    def check_xsrf_cookie(self) -> None:
        """Skip Tornado's check, because `prepare` has answered already."""


class _Welcome(web.RequestHandler):
    """Sets the browser's cookie, and redirects to the same page without the token in its URL."""

    def initialize(self, guard: Guard) -> None:
        self._guard = guard

    def get(self) -> None:
        secure = "https" in (self.request.protocol, self.request.headers.get("X-Forwarded-Proto"))
        name, value = self._guard.cookie_name, self._guard.cookie_value
        self.set_cookie(name, value, httponly=True, samesite="Lax", secure=secure)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        rest = [pair for pair in parse_qsl(self.request.query) if pair[0] != PARAMETER]
        # Relative, since a proxy may have put the scheduler behind a prefix.
        here = "./" + self.request.path.rpartition("/")[2]
        self.set_status(302)
        self.set_header("Location", here + (f"?{urlencode(rest)}" if rest else ""))


def is_foreign_websocket(headers: HTTPHeaders, allowed: Sequence[str] = ()) -> bool:
    """Return True if a request opens a websocket, and comes from a page of another site.

    A browser sends the scheduler's cookie with any page's websocket, so that the page could read
    the dashboard as its visitor. `allowed` is the same as in `is_foreign_page`.

    >>> asked = {"Upgrade": "websocket", "Host": "s:8787"}
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://s:8787"}))
    False
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://elsewhere"}))
    True
    >>> is_foreign_websocket(HTTPHeaders({**asked, "Origin": "http://elsewhere"}), ["elsewhere"])
    False
    """
    return headers.get("Upgrade", "").lower() == "websocket" and is_foreign_page(headers, allowed)


def is_foreign_page(headers: HTTPHeaders, allowed: Sequence[str] = ()) -> bool:
    """Return True if a request comes from a page of another site.

    The page's site is in the header `Origin`, which programs other than browsers do not send. It is
    another site if it is neither `Host` nor one of `X-Forwarded-Host`, which proxies set. `allowed`
    are patterns of sites (`HOST` or `HOST:PORT`, with `*`) for which the result is False.

    >>> is_foreign_page(HTTPHeaders({"Host": "s:8787", "Origin": "null"}))
    True
    >>> is_foreign_page(HTTPHeaders({"Host": "s:8787"}))
    False
    """
    origin = headers.get("Origin") or headers.get("Sec-Websocket-Origin")
    if origin is None:
        return False
    try:
        asking = urlsplit(origin).netloc.lower()
    except ValueError:
        return True
    # A proxy that replaces the host forwards the original host; pages can set neither header.
    ours = [headers.get("Host", ""), *headers.get("X-Forwarded-Host", "").split(",")]
    if asking in {host.strip().lower() for host in ours} - {""}:
        return False
    return not any(fnmatchcase(asking, pattern.lower()) for pattern in allowed)


def why_refused(request: HTTPServerRequest) -> Refusal | None:
    """Return why an order (see the module) is refused; `None` if it is allowed.

    It is refused from other machines if the scheduler has no token. From other sites' pages, orders
    other than GET and HEAD are refused. The token is not checked here, but before, by `Guard`.
    """
    if token_of_environment() is None and not _is_of_this_machine(request):
        return Refusal(
            403,
            "no_token",
            "the scheduler has no token, so it accepts orders only from its own machine",
            f"Start it with {TOKEN_VARIABLE} in its environment, and send it as `Authorization: "
            "Bearer TOKEN`.",
        )
    if request.method not in _READING and is_foreign_page(request.headers):
        origin = request.headers.get("Origin", "")
        return Refusal(
            403,
            "foreign_origin",
            f"a page of another site, {origin}, gives an order",
            "Programs send no Origin; behind a proxy, forward the browser's Host.",
        )
    return None


def _is_of_this_machine(request: HTTPServerRequest) -> bool:
    """Return True if a request comes from a program on this machine, and not through a proxy.

    The header `Host` must be local, too: another site's name may resolve to this machine's address;
    a browser then sends that name as `Host`.
    """
    names = list(request.headers)
    if any(name in _OF_PROXIES or name.startswith(_PREFIX_OF_PROXIES) for name in names):
        return False
    try:
        host = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(request.remote_ip or "") and is_loopback(host)
