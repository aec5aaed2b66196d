"""`distrain serve`: the API's and the reconciler's process, started, watched and ended.

The supervisor holds the socket, the lock of the data folder and the validated settings. It asks
nobody over the network, so there is little for which it could die; if it is killed all the same,
its children end by themselves, and clusters and jobs go on.
"""

import queue
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from distrain.errors import DistrainError
from distrain.service.process.children import Child
from distrain.service.process.preparing import declare
from distrain.service.settings import Settings
from distrain.service.store import Store

END_S = 15.0
LOOK_EVERY_S = 0.5
FIXED = ("data_dir", "database_url", "listen", "api_processes", "secrets_file")
"""What a running service does not change."""

_log = structlog.stdlib.get_logger("distrain.service.supervisor")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Supervisor:
    """Keeps the processes of one service running, with the settings in `config` as they change."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        bound: socket.socket,
        read: Callable[[], Settings],
        config: Path | None,
        on_ready: Callable[[], None],
    ):
        self._store, self._settings = store, settings
        self._read, self._config = read, config
        self._on_ready = on_ready
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._in_haste = False
        self._seen = self._file_state()
        names = [f"api-{number}" for number in range(settings.num_api_processes)]
        socket_words = ["serve", "api", "--supervised", str(bound.fileno())]
        self._children = [
            Child(name, socket_words, self._events.put, [bound.fileno()]) for name in names
        ]
        self._children.append(
            Child("reconciler", ["serve", "reconcile", "--supervised"], self._events.put)
        )
        self._not_ready = {child.name for child in self._children}

    @property
    def settings(self) -> Settings:
        return self._settings

    def run(self) -> None:
        """Watch the processes until SIGTERM or SIGINT, then end them in order."""
        with self._signals():
            try:
                self._watch()
            finally:
                self._end()

    def _watch(self) -> None:
        while True:
            self._start_due()
            try:
                event = self._events.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                event = None
            if event in (signal.SIGTERM, signal.SIGINT):
                return
            if isinstance(event, str):
                self._note_ready(event)
            self._look_for_ended()
            if event == signal.SIGHUP or self._file_state() != self._seen:
                self._reload()

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for child in self._children:
            if child.start_at_s is not None and child.start_at_s <= now_s:
                self._start(child, now_s)

    def _start(self, child: Child, now_s: float) -> None:
        child.start(self._settings, now_s)
        _log.info("started", child=child.name, pid=child.pid)

    def _look_for_ended(self) -> None:
        now_s = time.monotonic()
        for child in self._children:
            pid, code = child.pid, child.ended(now_s)
            if code is not None:
                assert child.start_at_s is not None
                _log.error(
                    "a process has ended and is started again",
                    child=child.name,
                    pid=pid,
                    exit_code=code,
                    again_in_s=round(child.start_at_s - now_s, 1),
                )

    def _note_ready(self, name: str) -> None:
        if name in self._not_ready:
            self._not_ready.remove(name)
            if not self._not_ready:
                self._on_ready()

    def _reload(self) -> None:
        self._seen = self._file_state()
        try:
            wanted = self._read()
            fixed = [key for key in FIXED if getattr(wanted, key) != getattr(self._settings, key)]
            if fixed:
                raise DistrainError(
                    f"a running service does not change {', '.join(fixed)}",
                    hint="Start `distrain serve` again for that.",
                )
            if wanted == self._settings:
                return
            declare(self._store, wanted)
        except DistrainError as error:
            _log.error("the configuration was not reloaded; nothing has changed", why=str(error))
            return
        self._settings = wanted
        _log.info("the configuration was reloaded")
        for child in self._children:  # one after the other; requests wait in the socket's queue
            child.end(END_S)
            self._start(child, time.monotonic())

    def _file_state(self) -> tuple[int, ...] | None:
        try:
            state = self._config.stat() if self._config else None
        except OSError:
            return ()
        return (state.st_mtime_ns, state.st_size, state.st_ino) if state else None

    def _end(self) -> None:
        # The API ends first, so that nobody is told of what is not done. A second signal means now.
        for child in self._children:
            child.end(END_S, self._is_impatient)
        _log.info("the API and the reconciler have ended")

    def _is_impatient(self) -> bool:
        while not self._events.empty():
            self._in_haste |= self._events.get() in (signal.SIGTERM, signal.SIGINT)
        return self._in_haste

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, lambda received, _: self._events.put(received))
            for number in _SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
