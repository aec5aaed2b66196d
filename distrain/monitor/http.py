"""The JSON documents over HTTP: handlers that Dask puts among its scheduler's own."""

import json
from typing import Any

from distributed.http.utils import RequestHandler

from distrain.monitor.observer import EXTENSION, Monitor
from distrain.monitor.openapi import openapi_document


class _JsonHandler(RequestHandler):  # type: ignore[misc]  # distributed is untyped
    """Answers with JSON, also where something is wrong."""

    @property
    def monitor(self) -> Monitor | None:
        """The scheduler's monitor; `None` before there is a coordinator."""
        monitor: Monitor | None = self.server.extensions.get(EXTENSION)
        return monitor

    def answer(self, document: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(document, allow_nan=False, separators=(",", ":")))

    def answer_of(self, job_id: str, document: dict[str, Any] | None) -> None:
        if document is None:
            listed = "GET /distrain/jobs lists the jobs that are known here"
            self.refuse(404, f"no job {job_id!r}", f"{listed}; the oldest are forgotten.")
        else:
            self.answer(document)

    def refuse(self, status: int, error: str, hint: str) -> None:
        self.set_status(status)
        self.answer({"error": error, "hint": hint})

    def head(self, *words: str) -> None:
        """The headers of GET; Tornado leaves the document out."""
        self.get(*words)

    def write_error(self, status_code: int, **_: Any) -> None:
        """Tornado's own errors, such as an unknown method."""
        if status_code == 405:
            self.set_header("Allow", "GET, HEAD")
        self.refuse(status_code, self._reason, "GET /distrain/openapi.json lists what there is.")


class _JobsHandler(_JsonHandler):
    """All jobs, the newest first."""

    def get(self) -> None:
        self.answer(self.monitor.jobs() if self.monitor else {"jobs": []})


class _JobHandler(_JsonHandler):
    """One job with its ranks, its time line and its spec."""

    def get(self, job_id: str) -> None:
        wanted = self.get_query_argument("ranks", "shown")
        if wanted not in ("shown", "all"):
            hint = "Pass `all`, or leave `ranks` out to get at most 64."
            self.refuse(400, f"ranks: {wanted!r} is none of shown, all", hint)
        else:
            known = self.monitor
            self.answer_of(job_id, known.job(job_id, all_ranks=wanted == "all") if known else None)


class _MetricsHandler(_JsonHandler):
    """One job's curves: all points, or those since a cursor."""

    def get(self, job_id: str) -> None:
        since = self.get_query_argument("since", None)
        try:
            document = self.monitor.metrics(job_id, since or None) if self.monitor else None
        except ValueError as error:
            hint = "Pass `cursor` of the last answer, or leave `since` out to get all."
            self.refuse(400, f"since: {error}", hint)
        else:
            self.answer_of(job_id, document)


class _OpenApiHandler(_JsonHandler):
    """The OpenAPI document of these handlers."""

    def get(self) -> None:
        self.answer(openapi_document())


class _NothingHandler(_JsonHandler):
    """Any other path below the jobs."""

    def prepare(self) -> None:
        """Refuse, whatever the method."""
        hint = "GET /distrain/openapi.json lists what there is."
        self.refuse(404, f"there is nothing at {self.request.path}", hint)

    def check_xsrf_cookie(self) -> None:
        pass  # nobody gets further than `prepare`


routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (r"/distrain/openapi\.json", _OpenApiHandler, {}),
    (r"/distrain/jobs/?", _JobsHandler, {}),
    (r"/distrain/jobs/([^/]+)", _JobHandler, {}),
    (r"/distrain/jobs/([^/]+)/metrics", _MetricsHandler, {}),
    (r"/distrain/jobs/.+", _NothingHandler, {}),
]
"""What `distributed.scheduler.http.routes` takes from a module."""
