"""Checks that the service can work: its database, reconcilers, filesystems and certificates."""

import shutil
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from distrain.service.bounded_calls import BoundedCalls, NoAnswer
from distrain.service.settings import Settings
from distrain.storage.outputs import nearest_existing
from distrain.storage.urls import is_remote
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


WAIT_S = 1.0


class Places:
    """Measures the free space of folders' filesystems.

    Each measurement has a timeout, since a filesystem may hang.
    """

    def __init__(self, folders: Mapping[str, Path]):
        self._folders = folders
        self._calls = {path: BoundedCalls("disk-space") for path in folders.values()}

    def disk_spaces(self, timeout_s: float = WAIT_S) -> dict[str, tuple[int, int] | None]:
        """Return the free bytes and the size of each folder's filesystem, by the folder's name.

        The value is `None` if the filesystem failed or did not answer within `timeout_s`.
        """
        spaces = {path: self._space(path, timeout_s) for path in self._calls}
        return {name: spaces[path] for name, path in self._folders.items()}

    def _space(self, path: Path, timeout_s: float) -> tuple[int, int] | None:
        try:
            return self._calls[path].result(partial(disk_space, path), timeout_s)
        except (NoAnswer, OSError):
            return None


def disk_space(path: Path) -> tuple[int, int]:
    """Return the free bytes and the size in bytes of the filesystem that holds a folder.

    If the folder does not exist, the filesystem is that of its nearest existing parent.
    """
    found = shutil.disk_usage(nearest_existing(path))
    return found.free, found.total


def folders_of(settings: Settings) -> dict[str, Path]:
    """Return the local folders to which the service writes, by the names of their settings."""
    roots = {
        f"clusters.{name}.run_root": settings.run_root(name)
        for name in settings.clusters
        if not is_remote(settings.run_place(name))
    }
    return {"data_dir": settings.data_dir, **roots}


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
