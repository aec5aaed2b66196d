"""`/livez`, `/readyz`, `/metrics`: the health of the service itself."""

from asyncio import to_thread  # not in the threads in which routes wait for the database
from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from distrain.errors import DistrainError
from distrain.jobs.addresses import is_loopback
from distrain.jobs.api_answers import Answer
from distrain.service.api.dependencies import ApiParts, Service, caller_now
from distrain.service.api.openapi import answers
from distrain.service.api.streams.figures import of_certificates, of_database, of_health
from distrain.service.api.streams.readiness import DATABASE_S, reconcile_trouble
from distrain.service.api.streams.stream_state import ApiStreams, streams_of
from distrain.service.bounded_calls import NoAnswer

router = APIRouter(tags=["health"])

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Health(Answer):
    """The service's health."""

    status: str = Field(description="`ok` or `failed`.")
    failed: dict[str, str] = Field({}, description="What failed, and why.")


@router.get("/livez", responses=answers(public=True))
async def livez() -> Health:
    """Return 200 whenever this process answers; nothing else is checked."""
    return Health(status="ok")


_NOT_READY = {503: {"model": Health, "description": "Not ready: `failed` has the reasons."}}


@router.get("/readyz", responses=answers(public=True, others=_NOT_READY), response_model=Health)
async def readyz(request: Request, service: Service) -> JSONResponse:
    """Return 200 if the service is ready, otherwise 503.

    It is ready if the database answers and has the tables of this version, and a reconciler has
    reported each cluster within the last 20 seconds.
    """
    failed = await _failed(streams_of(request.app), service)
    health = Health(status="failed" if failed else "ok", failed=failed)
    return JSONResponse(health.model_dump(mode="json"), 503 if failed else 200)


@router.get("/metrics", response_class=Response, responses=answers("unauthenticated", public=True))
async def metrics(request: Request, service: Service) -> Response:
    """Return the service's metrics for Prometheus.

    Requests from other machines, and requests through a proxy, need a token.
    """
    streams = streams_of(request.app)
    if not _is_local(request):
        await run_in_threadpool(caller_now, request, service)
    try:
        look = partial(of_database, service.store, service.settings)
        figures = await to_thread(streams.look.result, look, DATABASE_S)
    except (NoAnswer, DistrainError):
        figures = of_health(is_up=False, is_ready=False)
    now = [*figures, of_certificates(streams.certificate_ends_s)]
    text = streams.metrics.text(now, sum(streams.open.values()))
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _failed(streams: ApiStreams, service: ApiParts) -> dict[str, str]:
    store = service.store
    try:
        await to_thread(streams.look.result, store.check, DATABASE_S)
        ages_s = await to_thread(streams.look.result, store.report_ages_s, DATABASE_S)
    except NoAnswer:
        return {"database": f"it does not answer within {DATABASE_S:g} s"}
    except DistrainError as error:
        return {"database": error.message}
    settings = service.settings
    trouble = reconcile_trouble(ages_s, settings.clusters)
    return {"reconcile": trouble} if trouble else {}


def _is_local(request: Request) -> bool:
    """Return True if the request is from this machine and not forwarded by a proxy."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    return request.client is None or is_loopback(request.client.host)
