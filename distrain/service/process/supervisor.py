"""`distrain serve`: the API's and the reconciler's process, started, watched, started again, ended.

The supervisor holds the socket, the lock of the data folder and the validated settings. It asks
nobody over the network, so there is little for which it could die; if it is killed all the same,
its children end by themselves, and clusters and jobs go on.
"""

import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import structlog

from distrain.errors import DistrainError
from distrain.service.process.preparing import declare
from distrain.service.settings import Settings
from distrain.service.store.store import Store

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
LOOK_S = 0.1
SETTLED_S = 30.0  # a process that has run so long has not failed at its start


def pause_s(failures: int) -> float:
    """The pause before a start, after so many failures in a row.

    >>> [pause_s(failures) for failures in (0, 1, 2, 3, 20)]
    [0.0, 0.2, 0.4, 0.8, 30.0]
    """
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (failures - 1)) if failures else 0.0


class Child:
    """A process that is started again when it ends, after a growing pause.

    It gets the settings as one line of JSON on its standard input, whose end tells it that the
    supervisor is gone, and says `ready` on standard output.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        on_ready: Callable[[str], None],
        pass_fds: Sequence[int] = (),
    ):
        self.name = name
        self.failures = 0
        self.start_at_s: float | None = 0.0
        self._words = [sys.executable, "-P", "-m", "distrain", *words]
        self._on_ready, self._pass_fds = on_ready, pass_fds
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self, settings: Settings, now_s: float) -> None:
        self._process = process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self._pass_fds,
            process_group=0,  # Ctrl-C in the terminal is the supervisor's business
        )
        self._started_s, self.start_at_s = now_s, None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # it may have ended already, which `ended` tells
            process.stdin.write(settings.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        threading.Thread(target=self._listen, args=(process.stdout,), daemon=True).start()

    def ended(self, now_s: float) -> int | None:
        """The exit code of an ended process, once; it is then due again after a pause."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._close()
        self.failures = 1 if now_s - self._started_s >= SETTLED_S else self.failures + 1
        self.start_at_s = now_s + pause_s(self.failures)
        return code

    def end(self, wait_s: float, in_haste: Callable[[], bool] = lambda: False) -> None:
        """Stop it and wait; kill it after `wait_s`, or at once in haste."""
        self.start_at_s = None
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        until_s = time.monotonic() + wait_s
        while self._process.poll() is None:
            if in_haste() or time.monotonic() >= until_s:
                self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_S)
        self._close()

    def _close(self) -> None:
        assert self._process is not None
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                if line.strip() == b"ready":
                    self._on_ready(self.name)


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
