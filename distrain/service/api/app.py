"""The application: routes, guards, errors, and the waiting callers, over one store."""

import asyncio
import logging
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from distrain.service.access.sessions import service_key
from distrain.service.api.answers import openapi
from distrain.service.api.dependencies import ApiParts
from distrain.service.api.guards import Audit, BodyLimit, CleanAddress, RequestRates
from distrain.service.api.problems import register
from distrain.service.api.routes import ROUTERS
from distrain.service.api.streams.figures import Counting
from distrain.service.api.streams.stream_state import ApiStreams
from distrain.service.settings import Settings
from distrain.service.store.store import Store

EVERY_S = 0.3


class Waiting:
    """Waits for jobs without a thread for each."""

    def __init__(self, store: Store):
        self._store = store
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._stopped = False

    async def until_ended(self, job_id: str, timeout_s: float) -> bool:
        """Wait until a job has ended or is gone; false if the time is over before."""
        if self._stopped:
            return False
        event = asyncio.Event()
        self._waiters.setdefault(job_id, set()).add(event)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._leave(job_id, event)
        return not self._stopped

    def stop(self) -> None:
        """Release all waiting callers, as if their time were over: this process ends."""
        self._stopped = True
        for events in self._waiters.values():
            for event in events:
                event.set()

    def _leave(self, job_id: str, event: asyncio.Event) -> None:
        self._waiters[job_id].discard(event)
        if not self._waiters[job_id]:
            del self._waiters[job_id]
        if not self._waiters and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        while True:
            try:
                ended = await run_in_threadpool(self._store.ended_among, list(self._waiters))
            except Exception as error:  # with this task all who wait would run into their timeouts
                logging.getLogger("distrain.service.api").warning(
                    "cannot look for those who wait: %s", type(error).__name__
                )
                ended = set()
            for job_id in ended:
                for event in self._waiters.get(job_id, ()):
                    event.set()
            await asyncio.sleep(EVERY_S)


_STRANGERS_PER_S = 10.0


def make_app(store: Store, settings: Settings) -> FastAPI:
    """The API v1 as an ASGI application; the caller closes `store`. Raises InputError."""
    limits = settings.limits
    app = _routed()
    app.state.parts = ApiParts(
        store=store,
        settings=settings,
        key=service_key(settings),
        reads=RequestRates(limits.reads_per_s),
        submits=RequestRates(limits.submits_per_s),
        strangers=RequestRates(_STRANGERS_PER_S),
    )
    app.state.waiting = Waiting(store)
    app.state.streams = ApiStreams(store, settings)
    register(app)
    # The last added comes first.
    app.add_middleware(BodyLimit, limit_bytes=limits.body_bytes)
    app.add_middleware(Audit, write=store.audit)
    app.add_middleware(CleanAddress)
    app.add_middleware(Counting, metrics=app.state.streams.metrics)
    return app


def openapi_document() -> dict[str, Any]:
    return _routed().openapi()


def _routed() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json")
    app.router.redirect_slashes = False  # it redirects to whatever the header Host names
    for router in ROUTERS:
        app.include_router(router)

    def document() -> dict[str, Any]:
        return openapi(app)

    app.openapi = document  # type: ignore[method-assign]
    return app
