"""A process of the service, under its supervisor: started, watched, started again."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from distrain.service.settings import Settings

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
            process.stdin.write(settings_line(settings))
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


def settings_line(settings: Settings) -> bytes:
    return json.dumps(settings.model_dump(mode="json")).encode() + b"\n"


def settings_from(line: bytes) -> Settings:
    values: dict[str, Any] = json.loads(line)
    return Settings(**values)
