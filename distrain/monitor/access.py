"""A token before everything that a scheduler serves over HTTP: pages, JSON, metrics, websockets.

Dask has no such thing, so the application that Dask's servers route their requests through is
replaced by one that asks for the token first. Only `/health` stays open, for probes.
"""

import hmac
import os
from collections.abc import Callable
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from distributed import node
from distributed.http.routing import RoutingApplication
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from distrain.errors import ClusterError

TOKEN_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN"
OPEN_PATHS = frozenset({"/health"})
_PARAMETER = "token"


def install_access() -> None:
    """Guard the servers that start later in this process, where the environment has a token.

    Raises:
        ClusterError: The variable is there, and empty.
    """
    token_of_environment()
    node.RoutingApplication = GuardedApplication


def guard_running(application: RoutingApplication) -> None:
    """Guard a server that is running already, where the environment has a token; again: no effect.

    Args:
        application: What it routes its requests through.

    Raises:
        ClusterError: The variable is there, and empty.
    """
    token = token_of_environment()
    guarded = isinstance(application, GuardedApplication) or "find_handler" in vars(application)
    if token is not None and not guarded:
        # The server holds this very object, so it must stay, with another way to find handlers.
        application.find_handler = partial(
            _find_handler, application, Guard(token), application.find_handler
        )


def token_of_environment() -> str | None:
    """The token, or `None` where the variable is not set.

    Raises:
        ClusterError: It is set and empty: somebody wanted a token, and it got lost.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and not token.strip():
        raise ClusterError(
            f"{TOKEN_VARIABLE} is empty",
            hint="Set it to a secret, such as the output of `openssl rand -hex 32`, or unset it to "
            "leave the dashboard open.",
        )
    return token


class Guard:
    """Who may pass.

    Args:
        token: What they must know.
    """

    def __init__(self, token: str):
        self._token = token.encode()
        # A browser keeps this instead of the token. The name differs by token, since a host's
        # schedulers share their cookies whatever their ports.
        digest = hmac.new(self._token, b"distrain dashboard", "sha256").hexdigest()
        self.cookie_name, self.cookie_value = f"distrain-{digest[:8]}", digest[8:]

    def knows(self, told: str) -> bool:
        """Whether this is the token; takes as long either way."""
        return hmac.compare_digest(told.encode(), self._token)

    def lets_pass(self, headers: HTTPHeaders) -> bool:
        """Whether a request's headers have the token, or the cookie."""
        scheme, _, told = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.knows(told.strip()):
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
        """Whether a request has the token among its URL's parameters."""
        query = parse_qsl(request.query, errors="replace")
        return any(name == _PARAMETER and self.knows(value) for name, value in query)


class GuardedApplication(RoutingApplication):  # type: ignore[misc]  # distributed is untyped
    """Dask's router, behind a guard if the environment has a token."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        token = token_of_environment()
        self._guard = Guard(token) if token else None

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        """Dask's handler, or one that sends away."""
        return _find_handler(self, self._guard, super().find_handler, request, **options)


def _find_handler(
    application: RoutingApplication,
    guard: Guard | None,
    find_handler: Callable[..., Any],
    request: HTTPServerRequest,
    **options: Any,
) -> Any:
    if guard is None or request.path in OPEN_PATHS or guard.lets_pass(request.headers):
        return find_handler(request, **options)
    if request.method == "GET" and guard.has_token_in_url(request):
        return application.get_handler_delegate(request, _Welcome, {"guard": guard})
    return application.get_handler_delegate(request, _Denied)


class _Denied(web.RequestHandler):
    def prepare(self) -> None:
        self.set_status(401)
        self.set_header("WWW-Authenticate", 'Bearer realm="distrain"')
        self.finish(
            {
                "error": "the token is missing or wrong",
                "hint": "Send it as `Authorization: Bearer TOKEN`; in a browser open the page with "
                f"?{_PARAMETER}=TOKEN once.",
            }
        )

    def check_xsrf_cookie(self) -> None:
        """Nobody gets further than `prepare`."""


class _Welcome(web.RequestHandler):
    """Gives the browser a cookie, and sends it to the same page without the token in its URL."""

    def initialize(self, guard: Guard) -> None:
        self._guard = guard

    def get(self) -> None:
        secure = "https" in (self.request.protocol, self.request.headers.get("X-Forwarded-Proto"))
        self.set_cookie(
            self._guard.cookie_name,
            self._guard.cookie_value,
            httponly=True,
            samesite="Lax",
            secure=secure,
        )
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        rest = [pair for pair in parse_qsl(self.request.query) if pair[0] != _PARAMETER]
        # Relative, since a proxy may have put the scheduler behind a prefix.
        here = "./" + self.request.path.rpartition("/")[2]
        self.set_status(302)
        self.set_header("Location", here + (f"?{urlencode(rest)}" if rest else ""))
