"""The figures of the database and the filesystems at a scrape, as families of metrics. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric

from distrain.service.api.streams.places import Room

Series = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class ClusterFigures:
    """A cluster as its reconciler last reported it."""

    name: str
    kind: str  # as its profile says
    silent_s: float  # how long its scheduler was not heard; infinite: never heard
    # by state: `total`, `usable`, `free`; empty while it does not answer
    workers: Mapping[str, int] = field(default_factory=dict)
    jobs: int = 0  # its jobs that have not ended


@dataclass(frozen=True)
class Figures:
    """The database's figures at a scrape; `None` is left out."""

    jobs: Mapping[tuple[str, str], int]  # those that have not ended, by phase and state
    longest_queued_s: float
    reconcile_lag_s: float | None
    events_last: int
    ready: bool = False  # whether `/readyz` would say so
    # those that ended in the last hour, by state
    ended: Mapping[str, int] = field(default_factory=dict)
    # how long ago each lease was prolonged
    lease_ages_s: Mapping[str, float] = field(default_factory=dict)
    clusters: tuple[ClusterFigures, ...] = ()
    # their number by state: `ok`, `failing`, `disabled`
    webhooks: Mapping[str, int] = field(default_factory=dict)
    backup_s: float | None = None  # when the last backup was made, in unix seconds; 0: never


def of_database(figures: Figures | None) -> Iterator[Metric]:
    """Families of the database's figures; without figures, only that it does not answer."""
    up, ready = figures is not None, figures is not None and figures.ready
    yield _one("database_up", "Whether the database answers: 1 or 0", float(up))
    yield _one("ready", "Whether the service can do its work, as /readyz says: 1 or 0", ready)
    if figures is None:
        return
    yield from _of_jobs(figures)
    yield _one("last_event", "Number of the last event", figures.events_last)
    yield _many(
        "webhooks",
        "Webhooks by state; one that failed for three days is disabled",
        ("state",),
        {(state,): count for state, count in figures.webhooks.items()},
    )
    yield from _of_leases(figures)
    yield from _of_clusters(figures.clusters)
    if figures.backup_s is not None:
        about = "When `distrain serve backup` last made a copy of SQLite's file; 0: never"
        yield _one("backup_timestamp_seconds", about, figures.backup_s)


def of_places(rooms: Mapping[str, Room | None], certificates: Mapping[str, float]) -> list[Metric]:
    """Families of the filesystems' room and of the certificates' ends."""
    known = {place: room for place, room in rooms.items() if room is not None}
    return [
        _many(
            "storage_up",
            "Whether the filesystem of a folder answers: 1 or 0",
            ("place",),
            {(place,): float(room is not None) for place, room in rooms.items()},
        ),
        _many(
            "storage_free_bytes",
            "What is free for the service's user on the filesystem of a folder",
            ("place",),
            {(place,): room.free_bytes for place, room in known.items()},
        ),
        _many(
            "storage_size_bytes",
            "Size of the filesystem of a folder",
            ("place",),
            {(place,): room.size_bytes for place, room in known.items()},
        ),
        _many(
            "certificate_end_timestamp_seconds",
            "When a certificate ends that this process has read at its start",
            ("certificate",),
            {(name,): end_s for name, end_s in certificates.items()},
        ),
    ]


def _of_jobs(figures: Figures) -> Iterator[Metric]:
    yield _many(
        "jobs",
        "Jobs that have not ended, by the service's phase and the coordinator's state",
        ("phase", "state"),
        {(phase, state): count for (phase, state), count in figures.jobs.items()},
    )
    yield _many(
        "jobs_ended_last_hour",
        "Jobs that ended within the last hour",
        ("state",),
        {(state,): count for state, count in figures.ended.items()},
    )
    about = "How long the job waits that waits longest in the service's queue"
    yield _one("longest_queued_seconds", about, figures.longest_queued_s)


def _of_leases(figures: Figures) -> Iterator[Metric]:
    if figures.reconcile_lag_s is not None:
        about = "How long ago the reconciler that is furthest behind prolonged its lease"
        yield _one("reconcile_lag_seconds", about, figures.reconcile_lag_s)
    yield _many(
        "lease_age_seconds",
        "How long ago a lease was prolonged",
        ("lease",),
        {(lease,): age_s for lease, age_s in figures.lease_ages_s.items()},
    )


def _of_clusters(clusters: tuple[ClusterFigures, ...]) -> Iterator[Metric]:
    yield _many(
        "cluster_silence_seconds",
        "How long a cluster's scheduler was not heard; +Inf: never heard",
        ("cluster", "kind"),
        {(one.name, one.kind): one.silent_s for one in clusters},
    )
    yield _many(
        "cluster_jobs",
        "Jobs of a cluster that have not ended",
        ("cluster",),
        {(one.name,): one.jobs for one in clusters},
    )
    yield _many(
        "cluster_workers",
        "Workers of a cluster that answers: total, usable for ranks, free",
        ("cluster", "state"),
        {(c.name, state): count for c in clusters for state, count in c.workers.items()},
    )


def _one(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"distrain_service_{name}", about, float(value))


def _many(name: str, about: str, labels: tuple[str, ...], series: Series) -> Metric:
    family = GaugeMetricFamily(f"distrain_service_{name}", about, labels=labels)
    for values, value in series.items():
        family.add_metric(values, value)
    return family
