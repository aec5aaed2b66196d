"""Shows the waiting jobs of each cluster with reasons, and the used hours."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from distrain.service.access.rules import Action, may
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.routes.usage import USAGE_KEYS, UsageKey, used
from distrain.service.decisions.admission import in_order
from distrain.service.decisions.api_values import HANDING_OVER, QUEUED
from distrain.service.page.clusters_page import cluster_state
from distrain.service.page.job_list_page import job_documents
from distrain.service.page.rendering import PageRoute, own_url, page
from distrain.service.page.start_times import starts_in_s
from distrain.service.values import Job, Phase, Quota

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_WAITING = (QUEUED, HANDING_OVER, "pending")


@router.get("/queue")
def queue(call: Call) -> HTMLResponse:
    """Show each cluster's waiting jobs: first jobs that are handed over, then the queue."""
    call.require(Action.SEE_JOB)
    here_url = own_url(call.request, call.service.settings.listen.public_url)
    return page(call.request, "queue.html", call.caller, queues=queues(call), here_url=here_url)


def queues(call: ApiCall) -> list[dict[str, Any]]:
    """Return for each cluster the waiting jobs that the caller may see, with estimated starts."""
    states = {row.name: row.state for row in call.store.clusters()}
    alive = {name: call.store.alive(name) for name in call.service.settings.clusters}
    quotas = {project.name: project.quota for project in call.store.projects()}
    return [_queue(call, name, states.get(name, {}), alive, quotas) for name in alive]


def _queue(
    call: ApiCall,
    cluster: str,
    state: Mapping[str, Any],
    alive: Mapping[str, Sequence[Job]],
    quotas: Mapping[str, Quota],
) -> dict[str, Any]:
    jobs, workers = alive[cluster], state.get("workers") or {}
    active = [job for job in jobs if job.phase is not Phase.QUEUED]
    queued = [job for job in jobs if job.phase is Phase.QUEUED]
    active.sort(key=lambda job: (-job.priority, job.seq))
    ordered = [*active, *in_order(queued, active)]
    seen = [job for job in ordered if may(call.caller, Action.SEE_JOB, job.project, job.owner)]
    documents = job_documents(call, seen)
    elsewhere = Counter[str]()
    for other in (job for name in alive if name != cluster for job in alive[name]):
        elsewhere[other.project] += other.num_ranks if other.phase is not Phase.QUEUED else 0
    # A job that is handed over again, after its scheduler ended, still has the state it had there.
    holding = [job for job in active if job.phase is Phase.HANDED_OVER and job.state != "pending"]
    held = {job.id for job in holding}
    waiting = [job for job in ordered if job.id not in held]
    free, total = workers.get("free") or 0, workers.get("total")
    return {
        "cluster": cluster,
        "state": cluster_state(state),
        "jobs": [job for job in documents if job.state in _WAITING],
        "starts": starts_in_s(waiting, holding, free, quotas, elsewhere)
        if state.get("reachable")
        else {},
        "running": sum(job.state == "running" for job in documents),
        "total": total,
        "busy": None if total is None else total - free,
    }


@router.get("/usage")
def usage(
    call: Call,
    since: date | None = None,
    until: date | None = None,
    by: Annotated[tuple[UsageKey, ...], Query()] = ("project", "user"),
    tag: str = "",
) -> HTMLResponse:
    """Show the hours that ranks and GPUs were held; the default is the last 30 days."""
    found = used(call, since, until, by, tag or None)
    hours = {row.day: row for row in used(call, found.since, found.until, ("day",)).rows}
    span = range((found.until - found.since).days + 1)
    days = [(day, hours.get(day)) for day in (found.since + timedelta(n) for n in span)]
    columns = [*dict.fromkeys(by), *(["tag"] if tag else [])]
    asked = [("since", str(found.since)), ("until", str(found.until))]
    asked += [*(("by", key) for key in by), *([("tag", tag)] if tag else [])]
    return page(
        call.request,
        "usage.html",
        call.caller,
        usage=found,
        days=[
            (str(day), one.rank_hours, one.gpu_hours) if one else (str(day), 0, 0)
            for day, one in days
        ],
        columns=columns,
        keys=(*USAGE_KEYS, "cluster"),
        tag=tag,
        table=urlencode(asked),
    )
