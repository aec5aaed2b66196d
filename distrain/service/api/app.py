"""Makes the API's ASGI application from its routes, middleware and error handlers."""

from typing import Any

from fastapi import FastAPI

from distrain.service.access.policy import closed_places
from distrain.service.api.body_limit import BodyLimit
from distrain.service.api.dependencies import ApiParts
from distrain.service.api.openapi import openapi
from distrain.service.api.problems import register
from distrain.service.api.routes import ROUTERS
from distrain.service.api.streams.figures import Counting
from distrain.service.api.streams.stream_state import ApiStreams
from distrain.service.settings import Settings
from distrain.service.store.store import Store


def make_app(store: Store, settings: Settings) -> FastAPI:
    """Return the API v1 as an ASGI application; the caller closes `store`."""
    app = _routed()
    app.state.parts = ApiParts(store, settings, closed_places(settings))
    app.state.streams = ApiStreams(store, settings)
    register(app)
    # The middleware added last is called first.
    app.add_middleware(BodyLimit, limit_bytes=settings.limits.body_bytes)
    app.add_middleware(Counting, metrics=app.state.streams.metrics)
    return app


def openapi_document() -> dict[str, Any]:
    return _routed().openapi()


def _routed() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json")
    app.router.redirect_slashes = False  # a caller's header Host would decide the target
    for router in ROUTERS:
        app.include_router(router)

    def document() -> dict[str, Any]:
        return openapi(app)

    app.openapi = document  # type: ignore[method-assign]
    return app
