"""Single keys from a terminal, whose mode is restored afterwards, also on SIGTERM."""

import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NoReturn

from distrain.cli.interrupts import TERMINATED
from distrain.errors import on_sigterm


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
    """The keys in what a terminal sent, and its end if that may be the beginning of a key.

    >>> keys_of("jx\\x1b[A\\x1b[")
    ([<KeyPress.DOWN: 'down'>, <KeyPress.UP: 'up'>], '\\x1b[')
    """
    begun = _BEGUN.search(text)
    whole = text[: begun.start()] if begun else text
    pressed = (_KEYS.get(word) for word in _PRESSED.findall(whole))
    return [key for key in pressed if key is not None], text[len(whole) :]


class Keyboard:
    """Reads keys from `fd`, a terminal that sends each key at once; `None` for no terminal."""

    def __init__(self, fd: int | None = None):
        self.fd = fd
        self._rest = ""

    def wait(self, timeout_s: float) -> list[KeyPress]:
        """Wait for keys up to a time and return them. A terminal that went away quits."""
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
    """Standard input as a keyboard, if it is a terminal and this process is in its foreground.

    SIGTERM raises `SystemExit` meanwhile, so that the terminal's mode is restored then, too.
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
            tty.setcbreak(fd, termios.TCSADRAIN)  # Ctrl-C stays what it is
            yield Keyboard(fd)
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _terminal() -> int | None:
    try:
        fd = sys.stdin.fileno()
        # Whoever changes a terminal's mode from the background is stopped.
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):  # no standard input, or none that is a file
        return None


def _leave(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not come in between
    raise SystemExit(TERMINATED)
