"""Whether the service can do its work: its database, leases, filesystems and certificates."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from distrain.service.settings import Settings, TlsFiles
from distrain.storage.urls import is_remote
from distrain.workers.certificates import ends_s

Result = TypeVar("Result")

GRACE_S = 5.0  # from a lease's end until another reconciler surely has it
LEASE_S = 15.0  # what a lease is taken for; its owner prolongs it each third of that
DATABASE_S = 2.0


class NoAnswer(Exception):
    pass


class Look:
    """Calls functions that may hang, one at a time, in a thread of its own."""

    def __init__(self, name: str):
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: asyncio.Future[object] | None = None
        self._began_s = 0.0

    async def result(self, work: Callable[[], Result], within_s: float) -> Result:
        """The result, after earlier callers'; raises NoAnswer, also while an earlier call hangs."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while self._running is not None and not self._running.done():
            if loop.time() >= min(until_s, self._began_s + within_s):
                raise NoAnswer
            await asyncio.wait({self._running}, timeout=until_s - loop.time())
        self._began_s = loop.time()
        running = loop.run_in_executor(self._threads, work)
        self._running = running  # type: ignore[assignment]  # a future of any result
        running.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(running), until_s - loop.time())
        except TimeoutError:
            raise NoAnswer from None


def lag_limit_s(ttl_s: float = LEASE_S) -> float:
    """Return the lag from which a reconciler counts as gone: its lease is over, and nobody's."""
    return ttl_s + GRACE_S


def lease_ages_s(ends: Mapping[str, float], ttl_s: float = LEASE_S) -> dict[str, float]:
    """The time since each lease was renewed; `ends` are the seconds until each ends."""
    return {name: max(0.0, ttl_s - end_s) for name, end_s in ends.items()}


def reconcile_lag_s(
    ends: Mapping[str, float], clusters: Collection[str], ttl_s: float = LEASE_S
) -> float | None:
    """The time since the slowest reconciler renewed its lease, in seconds.

    `None`: a cluster never had a reconciler; `ends` are the seconds until each lease ends.

    >>> reconcile_lag_s({"cluster:a": 12.0, "cluster:b": -20.0}, ["a", "b"])
    35.0
    """
    names = [f"cluster:{cluster}" for cluster in clusters]
    if any(name not in ends for name in names):
        return None
    ages_s = lease_ages_s(ends, ttl_s)
    return max((ages_s[name] for name in names), default=0.0)


def reconcile_trouble(ends: Mapping[str, float], clusters: Collection[str], ttl_s: float) -> str:
    """Why the reconcilers count as gone; "" if all are at work."""
    lag_s = reconcile_lag_s(ends, clusters, ttl_s)
    if lag_s is None:
        return "a cluster never had a reconciler"
    late = lag_s >= lag_limit_s(ttl_s)
    return f"the last word of a reconciler is {lag_s:.0f} s old" if late else ""


WAIT_S = 1.0


@dataclass(frozen=True)
class Room:
    free_bytes: int
    size_bytes: int


class Places:
    """Asks filesystems of folders for their space; one that hangs holds up no other."""

    def __init__(self, folders: Mapping[str, Path]):
        self._folders = dict(folders)
        self._rooms: dict[Path, Room | None] = {}
        self._threads: dict[Path, threading.Thread] = {}

    def rooms(self, within_s: float = WAIT_S) -> dict[str, Room | None]:
        """The space by name; `None` without an answer within that time."""
        paths = set(self._folders.values())
        for path in paths:
            thread = self._threads.get(path)
            if thread is None or not thread.is_alive():
                self._rooms[path] = None
                self._threads[path] = self._begin(path)
        until_s = time.monotonic() + within_s
        for path in paths:
            self._threads[path].join(max(0.0, until_s - time.monotonic()))
        return {name: self._rooms[path] for name, path in self._folders.items()}

    def _begin(self, path: Path) -> threading.Thread:
        # A daemon: a filesystem that hangs does not keep the process.
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
            self._rooms[path] = Room(told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize)
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
