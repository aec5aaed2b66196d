"""Curves and reports of runs that have ended, drawn by one process after another."""

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress

log = logging.getLogger(__name__)

DRAW_S = 300.0  # how long drawing one run may take

_MOST_BYTES = 2**34  # of address space: matplotlib takes a GiB or two


class Pictures:
    """Draws runs in the background, one at a time, in a process without the service's settings."""

    def __init__(self, limit_s: float = DRAW_S):
        self._limit_s = limit_s
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def draw(self, root: str) -> None:
        """Have a run drawn after those that wait; never waits itself."""
        with self._changed:
            if self._closed or root in self._waiting:
                return
            self._waiting.append(root)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pictures", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Draw no more; a run that is being drawn is left without pictures."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            if self._process is not None:
                _end(self._process)
            thread = self._thread
        if thread is not None:
            thread.join(10.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                root = self._waiting.popleft()
            try:
                self._draw(root)
            except OSError as error:
                log.warning("cannot draw %s: %s", root, error)

    def _draw(self, root: str) -> None:
        command = [sys.executable, "-P", "-m", "distrain", "report", root, "--curves"]
        with self._changed:
            if self._closed:
                return
            self._process = process = subprocess.Popen(
                [*_NICE, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={n: v for n, v in os.environ.items() if not n.startswith(_SECRETS)},
                start_new_session=True,
            )
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        try:
            _, output = process.communicate(timeout=self._limit_s)
            if process.returncode and not self._closed:
                text = output.decode(errors="replace").strip()
                log.warning("cannot draw %s: %s", root, text or f"exit {process.returncode}")
        except subprocess.TimeoutExpired:
            log.warning("drawing %s took more than %g s and was ended", root, self._limit_s)
            _end(process)
            process.communicate()
        finally:
            with self._changed:
                self._process = None


_NICE = ("nice", "-n", "19")
_SECRETS = ("DISTRAIN_SERVE", "DISTRAIN_TOKEN", "DISTRAIN_DASHBOARD", "PG")  # begin so


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
