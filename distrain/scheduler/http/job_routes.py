"""Jobs as documents, for whoever may read: `/distrain/jobs`."""

from collections.abc import Callable
from typing import Any

from distributed.http.utils import RequestHandler

from distrain.scheduler.http.bodies import Refusal
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.http.handler import Handler, NothingHandler
from distrain.scheduler.http.monitor import Monitor


class _JobsHandler(Handler):
    def get(self) -> None:
        api: CoordinatorApi | None = self.server.extensions.get(EXTENSION)
        self.answer(api.monitor.jobs() if api else {"jobs": []})


class _OneHandler(Handler):
    def answer_about(
        self, job_id: str, document_of: Callable[[Monitor], dict[str, Any] | None]
    ) -> None:
        """Answer with a document of a job; a `Refusal` if the monitor does not know the job."""
        api: CoordinatorApi | None = self.server.extensions.get(EXTENSION)
        document = document_of(api.monitor) if api else None
        if document is None:
            listed = "GET /distrain/jobs lists the jobs that are known here"
            forgotten = f"{listed}; the oldest are forgotten."
            raise Refusal(404, "unknown", f"no job {job_id!r}", forgotten)
        self.answer(document)


class _JobHandler(_OneHandler):
    def get(self, job_id: str) -> None:
        wanted = self.get_query_argument("ranks", "shown")
        if wanted not in ("shown", "all"):
            hint = "Pass `all`, or leave `ranks` out to get at most 64."
            raise Refusal(400, "bad_request", f"ranks: {wanted!r} is none of shown, all", hint)
        self.answer_about(job_id, lambda monitor: monitor.job(job_id, all_ranks=wanted == "all"))


class _MetricsHandler(_OneHandler):
    def get(self, job_id: str) -> None:
        since = self.get_query_argument("since", None)
        try:
            self.answer_about(job_id, lambda monitor: monitor.metrics(job_id, since or None))
        except ValueError as error:
            hint = "Pass `cursor` of the last answer, or leave `since` out to get all."
            raise Refusal(400, "bad_request", f"since: {error}", hint) from None


routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (r"/distrain/jobs/?", _JobsHandler, {}),
    (r"/distrain/jobs/([^/]+)", _JobHandler, {}),
    (r"/distrain/jobs/([^/]+)/metrics", _MetricsHandler, {}),
    (r"/distrain/jobs/.+", NothingHandler, {}),
]
"""What `distributed.scheduler.http.routes` takes from a module."""
