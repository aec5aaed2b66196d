"""Room on the filesystems of the service, and the end of its certificates."""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distrain.certificates import ends_s
from distrain.service.settings import Settings, TlsFiles
from distrain.storage import is_remote

WAIT_S = 1.0


@dataclass(frozen=True)
class Room:
    """A filesystem's size, and the free part for the service's user."""

    free_bytes: int
    size_bytes: int


class Places:
    """Asks filesystems of folders for their room; one that hangs holds up no other."""

    def __init__(self, folders: Mapping[str, Path]):
        self._folders = dict(folders)
        self._rooms: dict[Path, Room | None] = {}
        self._threads: dict[Path, threading.Thread] = {}

    def rooms(self, within_s: float = WAIT_S) -> dict[str, Room | None]:
        """The room by name; `None` without an answer within that time."""
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
    """The local folders that the service writes, by the keys of the configuration."""
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
