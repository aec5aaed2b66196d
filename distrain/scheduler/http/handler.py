"""The Tornado handler of distrain's JSON routes in the HTTP server of Dask's scheduler."""

from http import HTTPStatus
from typing import Any

from distributed.http.utils import RequestHandler
from tornado.web import stream_request_body

from distrain.scheduler.http.access import why_refused
from distrain.scheduler.http.bodies import Refusal, dumps
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.http.routes import LISTED, PREFIX, Request, answer, route_of

MOST_BODY_BYTES = 2**20


@stream_request_body
class Handler(RequestHandler):  # type: ignore[misc]  # distributed is untyped
    """Answers with JSON, also for errors; limits the size of request bodies.

    If `accepts_commands` is False, as in a scheduler that was started without the preload, requests
    that change jobs (`Route.is_order`) are refused.
    """

    def initialize(self, dask_server: Any = None, accepts_commands: bool = True) -> None:
        super().initialize(dask_server)
        self._accepts_commands = accepts_commands

    def prepare(self) -> None:
        """Refuse unknown routes, large bodies and unauthorised changes before a body is read."""
        self._received = bytearray()
        self.request.connection.set_max_body_size(MOST_BODY_BYTES)
        try:
            self._check()
        except Refusal as refusal:
            self._refuse(refusal)

    def _check(self) -> None:
        route, _ = route_of(self.request.method, self._path)
        if route.is_order and not self._accepts_commands:
            hint = "Start the scheduler with `--preload distrain.preload`."
            raise Refusal(404, "not_found", "this scheduler accepts no orders over HTTP", hint)
        if route.is_order and (trouble := why_refused(self.request)) is not None:
            raise trouble
        if int(self.request.headers.get("Content-Length", "0")) > MOST_BODY_BYTES:
            hint = f"A body has at most {MOST_BODY_BYTES:,} bytes."
            raise Refusal(413, "too_large", "the body is too large", hint)

    def data_received(self, chunk: bytes) -> None:
        self._received += chunk

    @property
    def _path(self) -> str:
        """The request's path from `/v1` on, without a proxy's prefix and `PREFIX`."""
        _, version, rest = str(self.request.path).partition(f"{PREFIX}/v1")
        return version.removeprefix(PREFIX) + rest

    def get(self, *_: str) -> None:
        api: CoordinatorApi | None = self.server.extensions.get(EXTENSION)
        if api is None:
            raise Refusal(503, "starting", "the scheduler is starting", "Ask again in a second.")
        query = {
            name: [value.decode(errors="replace") for value in values]
            for name, values in self.request.query_arguments.items()
        }
        self._send(
            *answer(api, Request(self.request.method, self._path, query, bytes(self._received)))
        )

    head = put = post = patch = get

    def _send(self, status: int, text: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(text)

    def _refuse(self, refusal: Refusal) -> None:
        allowed = refusal.document.get("allow")
        if allowed:
            self.set_header("Allow", ", ".join([*allowed, *(["HEAD"] if "GET" in allowed else [])]))
        self._send(refusal.status, dumps(refusal.document))

    def write_error(self, status_code: int, **details: Any) -> None:
        """Write the error of a route, or Tornado's own errors, as JSON."""
        error = (details.get("exc_info") or (None, None, None))[1]
        code = HTTPStatus(status_code).name.lower()
        named = error if isinstance(error, Refusal) else None
        self._refuse(named or Refusal(status_code, code, self._reason, LISTED))

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Log bugs, not refusals."""
        if not isinstance(value, Refusal):
            super().log_exception(kind, value, traceback)

    def check_xsrf_cookie(self) -> None:
        """Skip Tornado's check of a cookie: `why_refused` checks the requests' `Origin` header."""


routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (rf"{PREFIX}/v1(?:/.*)?", Handler, {}),
]
"""Dask reads this name in each module of its setting `distributed.scheduler.http.routes`."""
