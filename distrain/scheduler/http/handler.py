"""The base of all handlers that Dask puts among its scheduler's own: JSON in, JSON out."""

import json
from http import HTTPStatus
from typing import Any, TypeVar

from distributed.http.utils import RequestHandler
from pydantic import ValidationError
from tornado.web import stream_request_body

from distrain.scheduler.http.access import trouble_with
from distrain.scheduler.http.bodies import Body, Refusal, dumps, explain
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi

MOST_BODY_BYTES = 2**20

LISTED = "docs/monitoring.md lists what a scheduler answers to."

_BODY = TypeVar("_BODY", bound=Body)


@stream_request_body
class Handler(RequestHandler):  # type: ignore[misc]  # distributed is untyped
    """Answers with JSON, also where something is wrong; takes bodies of a limited size."""

    is_for_orders = False

    def prepare(self) -> None:
        """Send away who may not ask, before their body is read."""
        self._received = bytearray()
        self.request.connection.set_max_body_size(MOST_BODY_BYTES)
        trouble = trouble_with(self.request) if self.is_for_orders else None
        if trouble is not None:
            self.refuse(trouble)
        elif int(self.request.headers.get("Content-Length", "0")) > MOST_BODY_BYTES:
            hint = f"A body has at most {MOST_BODY_BYTES:,} bytes."
            self.refuse(Refusal(413, "too_large", "the body is too large", hint))

    def data_received(self, chunk: bytes) -> None:
        self._received += chunk

    @property
    def api(self) -> CoordinatorApi:
        """What the routes call in this scheduler; a `Refusal` while the scheduler is starting."""
        api: CoordinatorApi | None = self.server.extensions.get(EXTENSION)
        if api is None:
            raise Refusal(503, "starting", "the scheduler is starting", "Ask again in a second.")
        return api

    def body(self, kind: type[_BODY]) -> _BODY:
        """The request's body; a `Refusal` if it cannot be used as this kind."""
        try:
            return kind.model_validate(json.loads(bytes(self._received)))
        except ValidationError as error:
            mistakes = explain(error)
        except (ValueError, RecursionError) as error:
            mistakes = f"not JSON: {error}"
        raise Refusal(400, "bad_request", mistakes, LISTED)

    def number(self, name: str, default: int) -> int:
        """A whole number of the query; a `Refusal` for another value."""
        text = self.get_query_argument(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Refusal(400, "bad_request", f"{name}: {text!r} is no whole number", LISTED)
        return int(text)

    def answer(self, document: str | dict[str, Any], status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(document if isinstance(document, str) else dumps(document))

    def refuse(self, refusal: Refusal) -> None:
        self.answer(dict(refusal.document), refusal.status)

    def head(self, *words: str) -> None:
        self.get(*words)

    def write_error(self, status_code: int, **details: Any) -> None:
        """What a handler raised, and Tornado's own errors such as an unknown method."""
        error = (details.get("exc_info") or (None, None, None))[1]
        if isinstance(error, Refusal):
            self.refuse(error)
            return
        if status_code == 405:
            own = {"GET": "GET, HEAD", "PUT": "PUT", "POST": "POST"}
            allowed = [names for name, names in own.items() if name.lower() in vars(type(self))]
            self.set_header("Allow", ", ".join(allowed))
        code = HTTPStatus(status_code).name.lower()
        self.refuse(Refusal(status_code, code, self._reason, LISTED))

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Log bugs, not refusals."""
        if not isinstance(value, Refusal):
            super().log_exception(kind, value, traceback)

    def check_xsrf_cookie(self) -> None:
        """`trouble_with` looks where an order comes from; nothing else changes anything."""


class NothingHandler(Handler):
    """Any other path below the routes."""

    def prepare(self) -> None:
        super().prepare()
        if not self._finished:
            nothing = f"there is nothing at {self.request.path}"
            self.refuse(Refusal(404, "not_found", nothing, LISTED))
