"""The service's own metrics for Prometheus: few label values, none of which a caller chooses."""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServiceMetrics:
    """The counts of an application's requests, and their text for Prometheus."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "distrain_service_requests",
            "Requests, by route, method and status",
            ("route", "method", "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "distrain_service_request_duration_seconds",
            "From a request to the end of its answer, streams left out",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

    def count(self, route: str, method: str, code: int, seconds: float, *, streams: bool) -> None:
        known = method if method in _METHODS else "other"
        self._requests.labels(route, known, str(code)).inc()
        if not streams:
            self._seconds.labels(route).observe(seconds)

    def text(self, now: Iterable[Metric], num_streams: int) -> bytes:
        """The metrics for Prometheus, with other families and the number of open event streams."""
        about = "Streams of events that this process serves"
        streams = GaugeMetricFamily("distrain_service_streams", about, num_streams)
        registry = CollectorRegistry()
        registry.register(_Now([streams, *now]))
        return generate_latest(self._registry) + generate_latest(registry)


class _Now(Collector):
    def __init__(self, families: Iterable[Metric]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Counting:
    """Counts all requests at their end; the outermost middleware."""

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began_s, code, streams = time.monotonic(), 500, False

        async def noted(message: Message) -> None:
            nonlocal code, streams
            if message["type"] == "http.response.start":
                code = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"")
                streams = kind.startswith(b"text/event-stream")
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.monotonic() - began_s
            self._metrics.count(route, scope["method"], code, seconds, streams=streams)
