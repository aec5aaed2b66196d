"""Jobs as documents, for whoever may read: `/distrain/jobs`."""

from typing import Any

from distributed.http.utils import RequestHandler

from distrain.door.door import EXTENSION, Door
from distrain.door.handler import Handler, NothingHandler
from distrain.door.monitor import Monitor
from distrain.door.refusal import Refusal


class _JobsHandler(Handler):
    def get(self) -> None:
        door: Door | None = self.server.extensions.get(EXTENSION)
        self.answer(door.monitor.jobs() if door else {"jobs": []})


class _OneHandler(Handler):
    def monitor_of(self, job_id: str) -> Monitor:
        """The monitor, if it has this job.

        Raises:
            Refusal: It has not.
        """
        door: Door | None = self.server.extensions.get(EXTENSION)
        if door is None or not door.monitor.knows(job_id):
            listed = "GET /distrain/jobs lists the jobs that are known here"
            forgotten = f"{listed}; the oldest are forgotten."
            raise Refusal(404, "unknown", f"no job {job_id!r}", forgotten)
        return door.monitor


class _JobHandler(_OneHandler):
    def get(self, job_id: str) -> None:
        wanted = self.get_query_argument("ranks", "shown")
        if wanted not in ("shown", "all"):
            hint = "Pass `all`, or leave `ranks` out to get at most 64."
            raise Refusal(400, "bad_request", f"ranks: {wanted!r} is none of shown, all", hint)
        self.answer(self.monitor_of(job_id).job(job_id, all_ranks=wanted == "all") or {})


class _MetricsHandler(_OneHandler):
    def get(self, job_id: str) -> None:
        since = self.get_query_argument("since", None)
        monitor = self.monitor_of(job_id)
        try:
            document = monitor.metrics(job_id, since or None)
        except ValueError as error:
            hint = "Pass `cursor` of the last answer, or leave `since` out to get all."
            raise Refusal(400, "bad_request", f"since: {error}", hint) from None
        self.answer(document or {})


routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
    (r"/distrain/jobs/?", _JobsHandler, {}),
    (r"/distrain/jobs/([^/]+)", _JobHandler, {}),
    (r"/distrain/jobs/([^/]+)/metrics", _MetricsHandler, {}),
    (r"/distrain/jobs/.+", NothingHandler, {}),
]
"""What `distributed.scheduler.http.routes` takes from a module."""
