"""`/livez`, `/readyz`, `/metrics`: the health of the service itself."""

import ipaddress
import math
from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from distrain.errors import DistrainError
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import Parts, Service, caller_now
from distrain.service.api.documents import Answer
from distrain.service.api.streams import (
    DATABASE_S,
    ClusterFigures,
    Figures,
    NoAnswer,
    Streams,
    lag_limit_s,
    lease_ages_s,
    of_database,
    of_places,
    reconcile_lag_s,
    streams_of,
)
from distrain.service.store import Webhook

router = APIRouter(tags=["health"])

_HOUR_S = 3600.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Health(Answer):
    """The service's health."""

    status: str
    failed: dict[str, str] = Field({}, description="What failed, and how.")


@router.get("/livez", responses=answers(public=True))
async def livez() -> Health:
    """Whether this process answers; nothing else is looked at."""
    return Health(status="ok")


_NOT_READY = {503: {"model": Health, "description": "It is not: `failed` says why."}}


@router.get("/readyz", responses=answers(public=True, others=_NOT_READY), response_model=Health)
async def readyz(request: Request, service: Service) -> JSONResponse:
    """Whether the database answers with the right tables and the reconcilers are at work."""
    failed = await _failed(streams_of(request.app), service)
    health = Health(status="failed" if failed else "ok", failed=failed)
    return JSONResponse(health.model_dump(mode="json"), 503 if failed else 200)


@router.get("/metrics", response_class=Response, responses=answers(public=True))
async def metrics(request: Request, service: Service) -> Response:
    """Figures for Prometheus, from this machine without a token, from others with one."""
    streams = streams_of(request.app)
    if not _is_local(request):
        await run_in_threadpool(caller_now, request, service)
    try:
        figures = await streams.look.result(lambda: _figures(service), DATABASE_S)
    except (NoAnswer, DistrainError):
        figures = None
    rooms = await run_in_threadpool(streams.places.rooms)
    now = [*of_database(figures), *of_places(rooms, streams.certificate_ends_s)]
    text = streams.metrics.text(now, sum(streams.open.values()))
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _failed(streams: Streams, service: Parts) -> dict[str, str]:
    store = service.store
    try:
        await streams.look.result(store.check, DATABASE_S)
        ends = await streams.look.result(store.lease_ends, DATABASE_S)
    except NoAnswer:
        return {"database": f"it does not answer within {DATABASE_S:g} s"}
    except DistrainError as error:
        return {"database": error.message}
    ttl_s = service.settings.leases.ttl_s
    lag_s = reconcile_lag_s(ends, service.settings.clusters, ttl_s)
    if lag_s is None:
        return {"reconcile": "a cluster never had a reconciler"}
    if lag_s >= lag_limit_s(ttl_s):
        return {"reconcile": f"the last word of a reconciler is {lag_s:.0f} s old"}
    return {}


def _figures(service: Parts) -> Figures:
    store, clusters = service.store, service.settings.clusters
    ends = store.lease_ends()
    ttl_s = service.settings.leases.ttl_s
    lag_s = reconcile_lag_s(ends, clusters, ttl_s)
    ours = {"publisher", *(f"cluster:{name}" for name in clusters)}
    return Figures(
        store.alive_counts(),
        store.longest_queued_s(),
        lag_s,
        store.last_seq(),
        ready=lag_s is not None and lag_s < lag_limit_s(ttl_s),
        ended=store.ended_counts(_HOUR_S),
        lease_ages_s=lease_ages_s({n: end_s for n, end_s in ends.items() if n in ours}, ttl_s),
        clusters=tuple(_cluster_figures(service)),
        webhooks=Counter(_state_of(hook) for hook in store.webhooks()),
        backup_s=store.backup_s(),
    )


def _cluster_figures(service: Parts) -> Iterator[ClusterFigures]:
    now_s, told = service.store.now_s(), {row.name: row for row in service.store.clusters()}
    for name, profile in service.settings.clusters.items():
        row = told.get(name)
        state = {} if row is None else row.state
        heard_s = None if row is None else row.observed_at_s
        workers = state.get("workers") or {}
        yield ClusterFigures(
            name,
            profile.kind,
            math.inf if heard_s is None else max(0.0, now_s - heard_s),
            {one: workers.get(one, 0) for one in ("total", "usable", "free") if workers},
            state.get("jobs", 0),
        )


def _state_of(hook: Webhook) -> str:
    if hook.disabled_at_s is not None:
        return "disabled"
    return "failing" if hook.failures else "ok"


def _is_local(request: Request) -> bool:
    """Whether the request is this machine's, and no proxy's there on behalf of others."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    try:
        return request.client is None or ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
