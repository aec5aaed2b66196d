"""The pages of the queue (each cluster's waiting jobs, with reasons) and of the used hours."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from distrain.service.access.rules import Action, may
from distrain.service.api.bodies import documents
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.routes.usage import USAGE_KEYS, UsageKey, used
from distrain.service.decisions.admission import in_order, ranks_elsewhere
from distrain.service.decisions.api_values import HANDING_OVER, QUEUED
from distrain.service.page.clusters_page import cluster_state
from distrain.service.page.rendering import PageRoute, own_url, page
from distrain.service.page.start_times import starts_in_s
from distrain.service.values import Job, Phase, Quota

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_WAITING = (QUEUED, HANDING_OVER, "pending")
_MOST_SPECS = 200  # jobs at the head of a queue whose `min_ranks` count in the estimates


@router.get("/queue")
def queue(call: Call) -> HTMLResponse:
    """Show each cluster's waiting jobs: first jobs that are handed over, then the queue."""
    call.require(Action.SEE_JOB)
    here_url = own_url(call.request, call.service.settings.listen.public_url)
    queues = [queue_of(call, cluster) for cluster in call.service.settings.clusters]
    return page(call.request, "queue.html", call.caller, queues=queues, here_url=here_url)


def queue_of(call: ApiCall, cluster: str) -> dict[str, Any]:
    """Return a cluster's part of the page, as values of the template.

    `jobs` are the waiting jobs that the caller may see; `starts` are the estimated seconds until
    waiting jobs start, by job id, also of jobs that the caller may not see.
    """
    queue = _Queue.of(call, cluster)
    seen = [
        job for job in queue.ordered if may(call.caller, Action.SEE_JOB, job.project, job.owner)
    ]
    shown = documents(call.service, seen)
    workers = queue.state.get("workers") or {}
    free, total = workers.get("free") or 0, workers.get("total")
    return {
        "cluster": cluster,
        "state": cluster_state(queue.state),
        "jobs": [job for job in shown if job.state in _WAITING],
        "starts": _starts_in_s(call, queue),
        "running": sum(job.state == "running" for job in shown),
        "total": total,
        "busy": None if total is None else total - free,
    }


def start_in_s(call: ApiCall, job: Job) -> float | None:
    """Return the estimated seconds until a waiting job starts; `None` if unknown."""
    return _starts_in_s(call, _Queue.of(call, job.cluster)).get(job.id)


@dataclass(frozen=True)
class _Queue:
    """A cluster's last report, and its jobs that have not ended.

    Attributes:
        ordered: First the jobs that are handed over or being handed over, by priority and age, then
            the queued jobs in the order in which they would start.
        elsewhere: The ranks in use on other clusters, by project, of projects with a limit.
    """

    state: Mapping[str, Any]
    ordered: list[Job]
    quotas: Mapping[str, Quota]
    elsewhere: Mapping[str, int]

    @classmethod
    def of(cls, call: ApiCall, cluster: str) -> "_Queue":
        states = {row.name: row.state for row in call.store.clusters()}
        jobs = call.store.alive(cluster)
        active = [job for job in jobs if job.phase is not Phase.QUEUED]
        active.sort(key=lambda job: (-job.priority, job.seq))
        quotas = {project.name: project.quota for project in call.store.projects()}
        bounded = {j.project for j in jobs if quotas.get(j.project, Quota()).max_ranks is not None}
        everywhere = {name: call.store.usage(name)["ranks"] for name in bounded}
        elsewhere = ranks_elsewhere(everywhere, active)
        waiting = (job for job in jobs if job.phase is Phase.QUEUED)
        ordered = [*active, *in_order(waiting, active, elsewhere)]
        return cls(states.get(cluster, {}), ordered, quotas, elsewhere)


def _starts_in_s(call: ApiCall, queue: _Queue) -> dict[str, float]:
    if not queue.state.get("reachable"):
        return {}
    # A job that is handed over again, after its scheduler ended, still has the state it had there.
    holding = [j for j in queue.ordered if j.phase is Phase.HANDED_OVER and j.state != "pending"]
    held = {job.id for job in holding}
    waiting = [job for job in queue.ordered if job.id not in held]
    specs = call.store.specs([job.id for job in waiting[:_MOST_SPECS] if job.num_ranks > 1])
    fewest = {
        job_id: int((spec.get("resources") or {}).get("min_ranks") or 0)
        for job_id, spec in specs.items()
    }
    free = (queue.state.get("workers") or {}).get("free") or 0
    return starts_in_s(waiting, holding, free, queue.quotas, queue.elsewhere, fewest)


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
