"""The routes: handlers that Dask puts among its scheduler's own."""

import json
from http import HTTPStatus
from typing import Any, TypeVar

from distributed.http.utils import RequestHandler
from pydantic import ValidationError
from tornado.web import stream_request_body

from distrain.gateway.caller import trouble_with
from distrain.gateway.changes import dumps
from distrain.gateway.documents import (
    JOB_ID_PATTERN,
    Body,
    CancelOrder,
    PreflightOrder,
    PriorityOrder,
    PutOrder,
    explain,
)
from distrain.gateway.gateway import EXTENSION, Gateway
from distrain.gateway.openapi import openapi_document
from distrain.gateway.refusal import Refusal

MOST_BODY_BYTES = 2**20
MOST_COLLECT_MS = 60_000

_BODY = TypeVar("_BODY", bound=Body)
_LISTED = "GET /distrain/v1/openapi.json lists what there is."


@stream_request_body
class _Handler(RequestHandler):  # type: ignore[misc]  # distributed is untyped
    """Answers with JSON, also where something is wrong; takes bodies of a limited size."""

    def prepare(self) -> None:
        """Send away who may not order anything here, before their body is read."""
        self._received = bytearray()
        self.request.connection.set_max_body_size(MOST_BODY_BYTES)
        trouble = trouble_with(self.request)
        if trouble is not None:
            self.refuse(trouble)
        elif int(self.request.headers.get("Content-Length", "0")) > MOST_BODY_BYTES:
            hint = f"A body has at most {MOST_BODY_BYTES:,} bytes."
            self.refuse(Refusal(413, "too_large", "the body is too large", hint))

    def data_received(self, chunk: bytes) -> None:
        """Keep what arrived of the body."""
        self._received += chunk

    @property
    def gateway(self) -> Gateway:
        """The scheduler's gateway.

        Raises:
            Refusal: The scheduler is only starting.
        """
        gateway: Gateway | None = self.server.extensions.get(EXTENSION)
        if gateway is None:
            raise Refusal(503, "starting", "the scheduler is starting", "Ask again in a second.")
        return gateway

    def body(self, kind: type[_BODY]) -> _BODY:
        """The request's body.

        Raises:
            Refusal: It is none of this kind.
        """
        try:
            return kind.model_validate(json.loads(bytes(self._received)))
        except ValidationError as error:
            mistakes = explain(error)
        except (ValueError, RecursionError) as error:
            mistakes = f"not JSON: {error}"
        raise Refusal(400, "bad_request", mistakes, _LISTED)

    def number(self, name: str, default: int) -> int:
        """A whole number of the query.

        Raises:
            Refusal: It is none.
        """
        text = self.get_query_argument(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Refusal(400, "bad_request", f"{name}: {text!r} is no whole number", _LISTED)
        return int(text)

    def answer(self, document: str | dict[str, Any], status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(document if isinstance(document, str) else dumps(document))

    def refuse(self, refusal: Refusal) -> None:
        self.answer(dict(refusal.document), refusal.status)

    def write_error(self, status_code: int, **details: Any) -> None:
        """What a handler raised, and Tornado's own errors such as an unknown method."""
        error = (details.get("exc_info") or (None, None, None))[1]
        if isinstance(error, Refusal):
            self.refuse(error)
            return
        if status_code == 405:
            allowed = [m for m in ("GET", "PUT", "POST") if m.lower() in vars(type(self))]
            self.set_header("Allow", ", ".join(allowed))
        code = HTTPStatus(status_code).name.lower()
        self.refuse(Refusal(status_code, code, self._reason, _LISTED))

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Log bugs, not refusals."""
        if not isinstance(value, Refusal):
            super().log_exception(kind, value, traceback)

    def check_xsrf_cookie(self) -> None:
        """`trouble_with` looks where a request comes from."""


class _JobsHandler(_Handler):
    """What changed of all jobs."""

    def get(self) -> None:
        since, epoch = self.number("since", 0), self.get_query_argument("epoch", None)
        service = self.get_query_argument("service", "")
        collect_s = 1e-3 * min(self.number("collect_ms", 0), MOST_COLLECT_MS)
        self.answer(self.gateway.changes_text(since, epoch, service, collect_s))


class _JobHandler(_Handler):
    """One job."""

    def get(self, job_id: str) -> None:
        self.answer(self.gateway.job(job_id))

    def put(self, job_id: str) -> None:
        gateway = self.gateway
        new = gateway.orders.put(job_id, self.body(PutOrder))
        self.answer(gateway.job(job_id), 201 if new else 200)


class _CancelHandler(_Handler):
    """The end of a job."""

    def post(self, job_id: str) -> None:
        gateway = self.gateway
        gateway.orders.cancel(job_id, self.body(CancelOrder))
        self.answer(gateway.job(job_id), 202)


class _PriorityHandler(_Handler):
    """The priority of a job that waits."""

    def post(self, job_id: str) -> None:
        gateway = self.gateway
        gateway.orders.set_priority(job_id, self.body(PriorityOrder))
        self.answer(gateway.job(job_id))


class _WorkersHandler(_Handler):
    """The workers, one by one."""

    def get(self) -> None:
        self.answer({"workers": self.gateway.workers()})


class _PreflightsHandler(_Handler):
    """Checks of specs on a worker."""

    def post(self) -> None:
        order = self.body(PreflightOrder)
        self.answer({"id": self.gateway.preflights.start(order.spec, order.owner)}, 202)


class _PreflightHandler(_Handler):
    """One check."""

    def get(self, preflight_id: str) -> None:
        self.answer(self.gateway.preflights.document(preflight_id))


class _OpenApiHandler(_Handler):
    """The OpenAPI document of these handlers."""

    def get(self) -> None:
        self.answer(openapi_document())


class _NothingHandler(_Handler):
    """Any other path below these."""

    def prepare(self) -> None:
        """Refuse, whatever the method."""
        super().prepare()
        if not self._finished:
            nothing = f"there is nothing at {self.request.path}"
            self.refuse(Refusal(404, "not_found", nothing, _LISTED))


_JOB = rf"/distrain/v1/jobs/({JOB_ID_PATTERN})"

routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (r"/distrain/v1/openapi\.json", _OpenApiHandler, {}),
    (r"/distrain/v1/jobs", _JobsHandler, {}),
    (_JOB, _JobHandler, {}),
    (rf"{_JOB}/cancel", _CancelHandler, {}),
    (rf"{_JOB}/priority", _PriorityHandler, {}),
    (r"/distrain/v1/workers", _WorkersHandler, {}),
    (r"/distrain/v1/preflight", _PreflightsHandler, {}),
    (r"/distrain/v1/preflight/([0-9a-f]{32})", _PreflightHandler, {}),
    (r"/distrain/v1(?:/.*)?", _NothingHandler, {}),
]
"""What `distributed.scheduler.http.routes` takes from a module."""
