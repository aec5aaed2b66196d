"""Orders and changes, for those who may give orders: `/distrain/v1`."""

from typing import Any

from distributed.http.utils import RequestHandler

from distrain.jobs.run_paths import JOB_ID
from distrain.scheduler.http.bodies import (
    CancelOrder,
    PreflightOrder,
    PriorityOrder,
    PutOrder,
)
from distrain.scheduler.http.handler import Handler, NothingHandler

MOST_COLLECT_MS = 60_000


class _OrderHandler(Handler):
    is_for_orders = True


class _JobsHandler(_OrderHandler):
    def get(self) -> None:
        since, epoch = self.number("since", 0), self.get_query_argument("epoch", None)
        service = self.get_query_argument("service", "")
        collect_s = 1e-3 * min(self.number("collect_ms", 0), MOST_COLLECT_MS)
        self.answer(self.api.changes_text(since, epoch, service, collect_s))


class _JobHandler(_OrderHandler):
    def get(self, job_id: str) -> None:
        self.answer(self.api.job(job_id))

    def put(self, job_id: str) -> None:
        new = self.api.orders.put(job_id, self.body(PutOrder))
        self.answer(self.api.job(job_id), 201 if new else 200)


class _CancelHandler(_OrderHandler):
    def post(self, job_id: str) -> None:
        self.api.orders.cancel(job_id, self.body(CancelOrder))
        self.answer(self.api.job(job_id), 202)


class _PriorityHandler(_OrderHandler):
    def post(self, job_id: str) -> None:
        self.api.orders.set_priority(job_id, self.body(PriorityOrder))
        self.answer(self.api.job(job_id))


class _WorkersHandler(_OrderHandler):
    def get(self) -> None:
        self.answer({"workers": self.api.workers()})


class _PreflightsHandler(_OrderHandler):
    def post(self) -> None:
        order = self.body(PreflightOrder)
        self.answer({"id": self.api.preflights.start(order.spec, order.owner)}, 202)


class _PreflightHandler(_OrderHandler):
    def get(self, preflight_id: str) -> None:
        self.answer(self.api.preflights.document(preflight_id))


class _NothingHandler(NothingHandler):
    is_for_orders = True


_JOB = rf"/distrain/v1/jobs/({JOB_ID})"

routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = [
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
