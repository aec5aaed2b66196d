"""Checks that the service can work: its database, reconcilers, filesystems and certificates."""

import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distrain.service.settings import Settings, TlsFiles
from distrain.storage.urls import is_remote
from distrain.workers.certificates import ends_s

LATE_S = 20.0  # a reconciler reports each cluster every 5 s; another takes over within seconds
DATABASE_S = 2.0


def reconcile_lag_s(ages_s: Mapping[str, float], clusters: Collection[str]) -> float | None:
    """Return the age in seconds of the oldest report on a cluster; `None` if a cluster has none.

    >>> reconcile_lag_s({"a": 3.0, "b": 35.0}, ["a", "b"])
    35.0
    """
    if any(name not in ages_s for name in clusters):
        return None
    return max((ages_s[name] for name in clusters), default=0.0)


def reconcile_trouble(ages_s: Mapping[str, float], clusters: Collection[str]) -> str:
    """Return why the reconcilers count as inactive; "" if all are active."""
    lag_s = reconcile_lag_s(ages_s, clusters)
    if lag_s is None:
        return "a cluster has never had a reconciler"
    return f"the last report of a reconciler is {lag_s:.0f} s old" if lag_s >= LATE_S else ""


WAIT_S = 1.0


@dataclass(frozen=True)
class DiskSpace:
    free_bytes: int
    size_bytes: int


class Places:
    """Queries the free space of filesystems; a hanging filesystem does not delay the others."""

    def __init__(self, folders: Mapping[str, Path]):
        self._folders = dict(folders)
        self._spaces: dict[Path, DiskSpace | None] = {}
        self._threads: dict[Path, threading.Thread] = {}

    def disk_spaces(self, within_s: float = WAIT_S) -> dict[str, DiskSpace | None]:
        """Return the space by folder name; `None` if a filesystem did not answer in `within_s`."""
        paths = set(self._folders.values())
        for path in paths:
            thread = self._threads.get(path)
            if thread is None or not thread.is_alive():
                self._spaces[path] = None
                self._threads[path] = self._begin(path)
        until_s = time.monotonic() + within_s
        for path in paths:
            self._threads[path].join(max(0.0, until_s - time.monotonic()))
        return {name: self._spaces[path] for name, path in self._folders.items()}

    def _begin(self, path: Path) -> threading.Thread:
        # A daemon thread, so that a hanging filesystem does not keep the process from exiting.
        thread = threading.Thread(target=self._ask, args=(path,), name="room", daemon=True)
        thread.start()
        return thread

    def _ask(self, path: Path) -> None:
        for place in (path, *path.parents):
            try:
                told = os.statvfs(place)
            except FileNotFoundError:
                continue
            except OSError:
                return
            self._spaces[path] = DiskSpace(
                told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize
            )
            return


def folders_of(settings: Settings) -> dict[str, Path]:
    roots = {
        f"clusters.{name}.run_root": settings.run_root(name)
        for name in settings.clusters
        if not is_remote(settings.run_place(name))
    }
    return {"data_dir": settings.data_dir, **roots}


def certificate_ends_s(settings: Settings) -> dict[str, float]:
    sections = [("listen.tls", settings.listen.tls)]
    sections += [(f"clusters.{name}.tls", one.tls) for name, one in settings.clusters.items()]
    named = {name: path for section, tls in sections for name, path in _files(section, tls)}
    ends = {name: ends_s(path) for name, path in named.items()}
    return {name: end_s for name, end_s in ends.items() if end_s is not None}


def _files(section: str, tls: TlsFiles) -> Iterator[tuple[str, Path]]:
    files: Iterable[tuple[str, Path | None]] = (
        ("cert_file", tls.cert_file),
        ("ca_file", tls.ca_file),
    )
    yield from ((f"{section}.{key}", path) for key, path in files if path is not None)
