"""Checks that the service can work: its reconcilers and certificates."""

from collections.abc import Collection, Mapping

from distrain.service.settings import Settings
from distrain.workers.certificates import ends_s

LATE_S = 20.0  # a reconciler reports each cluster every 5 s; another takes over within seconds
DATABASE_S = 2.0


def reconcile_lag_s(ages_s: Mapping[str, float], clusters: Collection[str]) -> float | None:
    """Return the largest age in seconds of the clusters' last reports.

    `ages_s` has the ages by cluster. Returns `None` if a cluster has no report.

    >>> reconcile_lag_s({"a": 3.0, "b": 35.0}, ["a", "b"])
    35.0
    """
    if any(name not in ages_s for name in clusters):
        return None
    return max((ages_s[name] for name in clusters), default=0.0)


def reconcile_trouble(ages_s: Mapping[str, float], clusters: Collection[str]) -> str:
    """Return why the service is not ready; "" if each cluster was reported less than `LATE_S` ago.

    The arguments are those of `reconcile_lag_s`.
    """
    lag_s = reconcile_lag_s(ages_s, clusters)
    if lag_s is None:
        return "a cluster has never had a reconciler"
    return f"the last report of a reconciler is {lag_s:.0f} s old" if lag_s >= LATE_S else ""


def certificate_ends_s(settings: Settings) -> dict[str, float]:
    """Return the Unix times at which the configured certificates expire, by their settings' names.

    Certificates that cannot be read are omitted.
    """
    named = {"listen.tls.cert_file": settings.listen.tls.cert_file}
    for name, profile in settings.clusters.items():
        named[f"clusters.{name}.tls.cert_file"] = profile.tls.cert_file
        named[f"clusters.{name}.tls.ca_file"] = profile.tls.ca_file
    ends = {name: ends_s(path) for name, path in named.items() if path is not None}
    return {name: end_s for name, end_s in ends.items() if end_s is not None}
