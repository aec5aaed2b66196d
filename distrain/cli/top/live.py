"""The screen of `distrain top`: its state, its keys, and its updates.

The terminal's mode is restored at the end, also on SIGTERM.
"""

import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from distrain.cli.interrupts import TERMINATED
from distrain.cli.output import clean_line
from distrain.cli.top.tables import Document, framed, listed, screen
from distrain.errors import DistrainError, on_sigterm
from distrain.jobs.states import FINAL_STATES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from distrain.cli.top.fetch_jobs import Dashboard


class KeyPress(Enum):
    UP = "up"
    DOWN = "down"
    PIN = "pin"
    QUIT = "quit"


_KEYS = {
    "k": KeyPress.UP, "\x1b[A": KeyPress.UP, "\x1bOA": KeyPress.UP,
    "j": KeyPress.DOWN, "\x1b[B": KeyPress.DOWN, "\x1bOB": KeyPress.DOWN,
    " ": KeyPress.PIN, "\r": KeyPress.PIN, "\n": KeyPress.PIN,
    "q": KeyPress.QUIT,
}  # fmt: skip
_PRESSED = re.compile(r"\x1b(?:\[[0-9;]*[@-~]|O.)|[^\x1b]|\x1b", re.DOTALL)
_BEGUN = re.compile(r"\x1b(?:\[[0-9;]*|O)?\Z")


def keys_of(text: str) -> tuple[list[KeyPress], str]:
    """Return the keys in a terminal's input, and its end if that may be an incomplete key.

    >>> keys_of("jx\\x1b[A\\x1b[")
    ([<KeyPress.DOWN: 'down'>, <KeyPress.UP: 'up'>], '\\x1b[')
    """
    begun = _BEGUN.search(text)
    whole = text[: begun.start()] if begun else text
    pressed = (_KEYS.get(word) for word in _PRESSED.findall(whole))
    return [key for key in pressed if key is not None], text[len(whole) :]


class Keyboard:
    """Reads keys from the terminal `fd`, which is in cbreak mode; `None` for no terminal."""

    def __init__(self, fd: int | None = None):
        self.fd = fd
        self._rest = ""

    def wait(self, timeout_s: float) -> list[KeyPress]:
        """Wait up to `timeout_s` for keys and return them; `QUIT` if the terminal is closed."""
        if self.fd is None:
            time.sleep(timeout_s)
            return []
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return []
        try:
            sent = os.read(self.fd, 1024)
        except OSError:
            sent = b""
        keys, self._rest = keys_of(self._rest + sent.decode("latin-1"))
        return keys if sent else [KeyPress.QUIT]


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Yield standard input as a keyboard, if this process is in a terminal's foreground.

    Otherwise the keyboard has no keys. Meanwhile SIGTERM raises `SystemExit`, so that the
    terminal's mode is restored.
    """
    with on_sigterm(_leave):
        fd = _terminal()
        if fd is None:
            yield Keyboard()
            return
        import termios
        import tty

        before = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd, termios.TCSADRAIN)  # Ctrl-C still interrupts
            yield Keyboard(fd)
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _terminal() -> int | None:
    try:
        fd = sys.stdin.fileno()
        # A background process that changes a terminal's mode is stopped.
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):  # no standard input, or not a file
        return None


def _leave(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the first
    raise SystemExit(TERMINATED)


def chosen(jobs: Sequence[Document], job_id: str | None) -> str | None:
    """Return the job to show: `job_id`, else the newest unfinished job, else the newest.

    `jobs` are the newest first. `None` if there are none.
    """
    if job_id is not None:
        return job_id
    going_on = [job["id"] for job in jobs if job["state"] not in FINAL_STATES]
    return next(iter(going_on or [job["id"] for job in jobs]), None)


def moved(jobs: Sequence[Document], job_id: str | None, by: int) -> str | None:
    """Return the job `by` rows further down the table, at most its first or last.

    >>> jobs = [{"id": "b", "state": "failed"}, {"id": "a", "state": "running"}]
    >>> moved(jobs, "a", 1), moved(jobs, "b", 1), moved(jobs, "gone", 1), moved([], None, 1)
    ('b', 'b', 'a', None)
    """
    ids = [str(job["id"]) for job in listed(jobs)]
    if job_id not in ids:
        return next(iter(ids), None)
    return ids[min(max(ids.index(job_id) + by, 0), len(ids) - 1)]


def show(console: "Console", dashboard: "Dashboard", job_id: str | None, interval_s: float) -> None:
    from rich.live import Live

    state = DashboardView(dashboard, job_id)
    state.update()  # a wrong address is an error at the start
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(state, console.size.height, keys.fd is not None), refresh=True)
            pressed = keys.wait(interval_s)
            if KeyPress.QUIT in pressed:
                return
            for key in pressed:
                state.press(key)
            state.try_update()


def _drawn(state: "DashboardView", height: int, with_keys: bool) -> "RenderableType":
    note = f"{time.strftime('%H:%M:%S')}  {state.note}"
    height -= with_keys
    drawn = screen(state.jobs, state.job, height, note)
    return framed(drawn, pinned=state.wanted is not None) if with_keys else drawn


class DashboardView:
    def __init__(self, dashboard: "Dashboard", job_id: str | None):
        self.dashboard = dashboard
        self.jobs: list[dict[str, Any]] = []  # newest first
        self.job: dict[str, Any] | None = None  # the shown job, with its ranks
        self.wanted = job_id  # the pinned job; `None` to follow the newest
        self.note = dashboard.url  # or the error when reading it

    def update(self) -> None:
        self.jobs = self.dashboard.jobs()
        job_id = chosen(self.jobs, self.wanted)
        self.job = None if job_id is None else self.dashboard.job(job_id)

    def try_update(self) -> None:
        """Update the state; put an error into `note`, since the scheduler may come back."""
        try:
            self.update()
            self.note = self.dashboard.url
        except DistrainError as error:
            self.note = f"{clean_line(error.message)}; retrying"

    def press(self, key: KeyPress) -> None:
        if key in (KeyPress.UP, KeyPress.DOWN):
            shown = chosen(self.jobs, self.wanted)
            self.wanted = moved(self.jobs, shown, -1 if key is KeyPress.UP else 1)
        elif key is KeyPress.PIN:
            self.wanted = chosen(self.jobs, None) if self.wanted is None else None
