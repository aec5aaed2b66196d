"""The JSON documents over HTTP: handlers that Dask puts among its scheduler's own."""

import json
from typing import Any

from distributed.http.utils import RequestHandler

from distrain.monitor.observer import EXTENSION, Monitor
from distrain.monitor.openapi import openapi_document

_LIST_HINT = "GET /distrain/jobs lists the jobs that are known here; the oldest are forgotten."


class _JsonHandler(RequestHandler):  # type: ignore[misc]  # distributed is untyped
    """Answers with JSON, also where something is wrong."""

    @property
    def monitor(self) -> Monitor | None:
        """What knows the jobs; `None` before there is a coordinator."""
        monitor: Monitor | None = self.server.extensions.get(EXTENSION)
        return monitor

    def answer(self, document: dict[str, Any]) -> None:
        """Send a document."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(document, allow_nan=False, separators=(",", ":")))

    def refuse(self, status: int, error: str, hint: str) -> None:
        """Say what is wrong."""
        self.set_status(status)
        self.answer({"error": error, "hint": hint})

    def head(self, *words: str) -> None:
        """The headers that GET would give; Tornado leaves the document out."""
        self.get(*words)

    def write_error(self, status_code: int, **_: Any) -> None:
        """Tornado's own errors, such as a method that there is not."""
        if status_code == 405:
            self.set_header("Allow", "GET, HEAD")
        self.refuse(status_code, self._reason, "GET /distrain/openapi.json tells what there is.")


class JobsHandler(_JsonHandler):
    """All jobs."""

    def get(self) -> None:
        """The newest first."""
        self.answer(self.monitor.jobs() if self.monitor else {"jobs": []})


class JobHandler(_JsonHandler):
    """One job."""

    def get(self, job_id: str) -> None:
        """With its ranks, its time line and its spec."""
        wanted = self.get_query_argument("ranks", "shown")
        if wanted not in ("shown", "all"):
            hint = "Pass `all`, or leave `ranks` out to get at most 64."
            self.refuse(400, f"ranks: {wanted!r} is none of shown, all", hint)
            return
        document = self.monitor.job(job_id, all_ranks=wanted == "all") if self.monitor else None
        if document is None:
            self.refuse(404, f"no job {job_id!r}", _LIST_HINT)
        else:
            self.answer(document)


class MetricsHandler(_JsonHandler):
    """One job's curves."""

    def get(self, job_id: str) -> None:
        """All of them, or what is new since a cursor."""
        since = self.get_query_argument("since", None)
        try:
            document = self.monitor.metrics(job_id, since or None) if self.monitor else None
        except ValueError as error:
            hint = "Pass `cursor` of the last answer, or leave `since` out to get all."
            self.refuse(400, f"since: {error}", hint)
            return
        if document is None:
            self.refuse(404, f"no job {job_id!r}", _LIST_HINT)
        else:
            self.answer(document)


class OpenApiHandler(_JsonHandler):
    """What there is to ask for."""

    def get(self) -> None:
        """As an OpenAPI document."""
        self.answer(openapi_document())


class NothingHandler(_JsonHandler):
    """Any other path below the jobs."""

    def prepare(self) -> None:
        """Say so, whatever the method."""
        hint = "GET /distrain/openapi.json tells what there is."
        self.refuse(404, f"there is nothing at {self.request.path}", hint)

    def check_xsrf_cookie(self) -> None:
        """Nobody gets further than `prepare`."""


routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (r"/distrain/openapi\.json", OpenApiHandler, {}),
    (r"/distrain/jobs/?", JobsHandler, {}),
    (r"/distrain/jobs/([^/]+)", JobHandler, {}),
    (r"/distrain/jobs/([^/]+)/metrics", MetricsHandler, {}),
    (r"/distrain/jobs/.+", NothingHandler, {}),
]
"""What `distributed.scheduler.http.routes` takes from a module."""
