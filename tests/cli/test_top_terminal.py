"""`distrain top` on a real pseudo-terminal, and the terminal's mode after any end."""

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from scripted_service import Reply, ScriptedService, Seen
from waiting import until

from distrain.errors import TERMINATED

ROWS, COLUMNS = 24, 80
# The terminal becomes the one of a session of its own, as a shell does it.
IN_A_SESSION = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'distrain', 'top', *sys.argv[1:]])"
)


JOBS = [
    {"id": name, "state": "running", "attempt": 1, "step": 5, "num_steps": 10}
    for name in ("new", "mid", "old")
]


def answer(seen: Seen) -> Reply:
    parts = seen.path.partition("?")[0].strip("/").split("/")[2:]
    found: dict[str, object] = {"jobs": JOBS}
    return Reply(
        200, next({**job, "ranks": []} for job in JOBS if job["id"] in parts) if parts else found
    )


class Terminal:
    """A terminal in which `distrain top` runs, with the arguments `words`."""

    def __init__(self, *words: str):
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        command = [sys.executable, "-c", IN_A_SESSION, *words]
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )
        self._sent = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._sent += os.read(self._master, 65536)
            except OSError:
                return

    @property
    def text(self) -> str:
        """All that was sent to the terminal."""
        return self._sent.decode(errors="replace")

    @property
    def frame(self) -> list[str]:
        """The lines of the last screen that was drawn whole."""
        frames = [
            re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).split("\r\n")
            for frame in self.text.split("\x1b[H")
        ]
        return next((frame for frame in reversed(frames) if len(frame) == ROWS), [])

    def shows(self, text: str) -> None:
        """Wait until a line of the screen holds this."""
        until(lambda: any(text in line for line in self.frame), f"{text!r} in {self.frame}")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    @property
    def mode(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        self._reader.join(timeout=10)
        os.close(self._master)


@pytest.fixture
def url() -> Iterator[str]:
    with ScriptedService(answer) as service:
        yield service.address


def check_left(terminal: Terminal, returncode: int) -> None:
    """The command has ended, and the terminal is as it was."""
    assert terminal.process.wait(timeout=90) == returncode, terminal.text[-2000:]
    assert terminal.mode == terminal.before
    until(lambda: "\x1b[?1049l" in terminal.text, "the screen of before is back")
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l"), "the cursor"


@pytest.mark.parametrize("ending", ["Ctrl-C", "SIGTERM"])
def test_any_end_leaves_the_terminal_as_it_was(ending: str, url: str) -> None:
    with closing(Terminal("--server", url, "--interval", "0.1")) as terminal:
        terminal.shows("new, attempt 1: running")
        assert max(map(len, terminal.frame)) <= COLUMNS
        if ending == "Ctrl-C":
            terminal.press("\x03")
        else:
            terminal.process.send_signal(signal.SIGTERM)
        check_left(terminal, 0 if ending == "Ctrl-C" else TERMINATED)
