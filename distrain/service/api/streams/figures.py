"""The service's metrics for Prometheus: request counts, and figures of the database.

Each label has few values, and callers cannot choose them.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrain.service.api.streams.readiness import (
    reconcile_lag_s,
    reconcile_trouble,
)
from distrain.service.settings import Settings
from distrain.service.store.store import Store

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServiceMetrics:
    """The counters of one API process, identified by the label `process`.

    Each scrape reaches one of the processes, at random. Without the label, a counter would seem to
    restart at most scrapes, and its rate would be much too high.
    """

    def __init__(self) -> None:
        self._process = str(os.getpid())
        self._registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "distrain_service_requests",
            "Requests, by route, method and status",
            ("process", "route", "method", "code"),
            registry=self._registry,
        )
        self._seconds = prometheus.Histogram(
            "distrain_service_request_duration_seconds",
            "Time from a request to the end of its answer, without streams",
            ("process", "route"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

    def count(self, route: str, method: str, code: int, seconds: float, *, streams: bool) -> None:
        known = method if method in _METHODS else "other"
        self._requests.labels(self._process, route, known, str(code)).inc()
        if not streams:
            self._seconds.labels(self._process, route).observe(seconds)

    def text(self, now: Iterable[Metric], num_streams: int) -> bytes:
        """Return the text of a Prometheus scrape: this object's counters, and the metrics `now`.

        `num_streams` is the number of open event streams, which becomes a metric, too.
        """
        about = "Streams of events that this process serves"
        streams = GaugeMetricFamily("distrain_service_streams", about, labels=("process",))
        streams.add_metric((self._process,), num_streams)
        registry = prometheus.CollectorRegistry()
        registry.register(_Now([streams, *now]))
        return b"".join(map(prometheus.generate_latest, (self._registry, registry)))


class _Now(Collector):
    def __init__(self, families: Iterable[Metric]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Counting:
    """Middleware that counts requests, and measures the time of all but event streams."""

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


Series = Mapping[tuple[str, ...], float]

_HOUR_S = 3600.0


def of_health(*, is_up: bool, is_ready: bool) -> list[Metric]:
    return [
        _one("database_up", "Whether the database answers: 1 or 0", is_up),
        _one("ready", "Whether the service is ready, as in /readyz: 1 or 0", is_ready),
    ]


def of_database(store: Store, settings: Settings) -> list[Metric]:
    """Return Prometheus metrics that are read from the database.

    Those without a value yet are left out.
    """
    ages_s = store.report_ages_s()
    trouble = reconcile_trouble(ages_s, settings.clusters)
    about = "When `distrain serve backup` last made a copy of SQLite's file; 0: never"
    backup_s = store.backup_s()
    return [
        *of_health(is_up=True, is_ready=not trouble),
        *_of_jobs(store),
        _one("last_event", "Number of the last event", store.last_seq()),
        _one("events_lag_seconds", "Waiting time of the oldest event", store.unpublished_s()),
        *_of_reconcilers(ages_s, settings),
        *_of_clusters(store, settings),
        *([] if backup_s is None else [_one("backup_timestamp_seconds", about, backup_s)]),
    ]


def of_certificates(ends_s: Mapping[str, float]) -> Metric:
    return _many(
        "certificate_end_timestamp_seconds",
        "Expiry of a certificate that this process read at its start",
        ("certificate",),
        {(name,): end_s for name, end_s in ends_s.items()},
    )


def _of_jobs(store: Store) -> Iterator[Metric]:
    yield _many(
        "jobs",
        "Jobs that have not ended, by the service's phase and the coordinator's state",
        ("phase", "state"),
        {(phase, state): count for (phase, state), count in store.alive_counts().items()},
    )
    yield _many(
        "jobs_ended_last_hour",
        "Jobs that ended within the last hour",
        ("state",),
        {(state,): count for state, count in store.ended_counts(_HOUR_S).items()},
    )
    about = "Waiting time of the oldest job in the service's queue"
    yield _one("longest_queued_seconds", about, store.longest_queued_s())


def _of_reconcilers(ages_s: Mapping[str, float], settings: Settings) -> Iterator[Metric]:
    lag_s = reconcile_lag_s(ages_s, settings.clusters)
    if lag_s is not None:
        yield _one("reconcile_lag_seconds", "Age of the oldest report about a cluster", lag_s)
    yield _many(
        "cluster_report_age_seconds",
        "Time since a reconciler reported about a cluster",
        ("cluster",),
        {(name,): age_s for name, age_s in ages_s.items() if name in settings.clusters},
    )


def _of_clusters(store: Store, settings: Settings) -> Iterator[Metric]:
    now_s, rows = store.now_s(), {row.name: row for row in store.clusters()}
    silent_s, jobs, workers = (dict[tuple[str, ...], float]() for _ in range(3))
    for name, profile in settings.clusters.items():
        row = rows.get(name)
        state = {} if row is None else row.state
        heard_s = None if row is None else row.observed_at_s
        silence_s = math.inf if heard_s is None else max(0.0, now_s - heard_s)
        silent_s[name, profile.kind] = silence_s
        jobs[name,] = state.get("jobs", 0)
        if counts := state.get("workers"):
            workers |= {(name, one): counts.get(one, 0) for one in ("total", "usable", "free")}
    yield _many(
        "cluster_silence_seconds",
        "Time since a cluster's scheduler answered; +Inf: never",
        ("cluster", "kind"),
        silent_s,
    )
    yield _many("cluster_jobs", "Jobs of a cluster that have not ended", ("cluster",), jobs)
    yield _many(
        "cluster_workers",
        "Workers of a cluster that answers: total, usable for ranks, free",
        ("cluster", "state"),
        workers,
    )


def _one(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"distrain_service_{name}", about, float(value))


def _many(name: str, about: str, labels: tuple[str, ...], series: Series) -> Metric:
    family = GaugeMetricFamily(f"distrain_service_{name}", about, labels=labels)
    for values, value in series.items():
        family.add_metric(values, value)
    return family
