"""Shows the waiting jobs of each cluster with reasons, and the used hours."""

from datetime import date
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from distrain.service.access.rules import Action, may
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.routes.usage import USAGE_KEYS, UsageKey, used
from distrain.service.decide.admission import in_order
from distrain.service.decide.api_values import HANDING_OVER, QUEUED
from distrain.service.page.job_list_page import job_documents
from distrain.service.page.rendering import PageRoute, page
from distrain.service.values import Phase

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_WAITING = (QUEUED, HANDING_OVER, "pending")


@router.get("/queue")
def queue(call: Call) -> HTMLResponse:
    """Show the waiting jobs of each cluster: those handed over, then the queue by its shares."""
    call.require(Action.SEE_JOB)
    workers = {row.name: row.state.get("workers") or {} for row in call.store.clusters()}
    queues = [_queue(call, name, workers.get(name, {})) for name in call.service.settings.clusters]
    return page(call.request, "queue.html", call.caller, queues=queues)


def _queue(call: ApiCall, cluster: str, workers: dict[str, Any]) -> dict[str, Any]:
    jobs = call.store.alive(cluster)
    active = [job for job in jobs if job.phase is not Phase.QUEUED]
    queued = [job for job in jobs if job.phase is Phase.QUEUED]
    active.sort(key=lambda job: (-job.priority, job.seq))
    seen = [
        job
        for job in (*active, *in_order(queued, active))
        if may(call.caller, Action.SEE_JOB, job.project, job.owner)
    ]
    documents = job_documents(call, seen)
    total = workers.get("total")
    return {
        "cluster": cluster,
        "jobs": [job for job in documents if job.state in _WAITING],
        "running": sum(job.state == "running" for job in documents),
        "total": total,
        "busy": None if total is None else total - (workers.get("free") or 0),
    }


@router.get("/usage")
def usage(
    call: Call,
    since: date | None = None,
    until: date | None = None,
    by: Annotated[tuple[UsageKey, ...], Query()] = ("project", "user"),
    tag: str = "",
) -> HTMLResponse:
    """Show the hours that ranks and GPUs were held; the default is one month."""
    found = used(call, since, until, by, tag or None)
    columns = [*dict.fromkeys(by), *(["tag"] if tag else [])]
    asked = [("since", str(found.since)), ("until", str(found.until))]
    asked += [*(("by", key) for key in by), *([("tag", tag)] if tag else [])]
    return page(
        call.request,
        "usage.html",
        call.caller,
        usage=found,
        columns=columns,
        keys=(*USAGE_KEYS, "cluster"),
        tag=tag,
        table=urlencode(asked),
    )
