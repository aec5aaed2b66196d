"""A notice board on which the ranks of a gang tell each other short texts, without a collective."""

import threading
from collections.abc import Callable
from typing import Protocol


class Board(Protocol):
    """Texts under keys that all ranks of one attempt can read.

    Unlike a collective operation it may be used by a thread while the training is in the middle
    of a step, and nobody waits longer for a dead peer than they say. Every method may be called by
    any thread. A board that cannot be reached any more raises `OSError` or `RuntimeError`.
    """

    def post(self, key: str, text: str) -> None:
        """Put a text up; one that hangs under this key already is replaced."""

    def read(self, key: str, timeout_s: float) -> str:
        """A text, for which it is waited at most `timeout_s` seconds.

        Raises:
            TimeoutError: None was put up in that time.
        """

    def check(self, key: str) -> bool:
        """Whether a text hangs under this key; does not wait."""

    def clear(self, prefix: str) -> None:
        """Take down the texts that this rank put up under keys that begin with `prefix`."""


class LocalBoard:
    """The board of a rank that has no peers; threads of one process may share it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._changed = threading.Condition()

    def post(self, key: str, text: str) -> None:
        """See `Board`."""
        with self._changed:
            self._texts[key] = text
            self._changed.notify_all()

    def read(self, key: str, timeout_s: float) -> str:
        """See `Board`."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._texts, timeout_s):
                raise TimeoutError(f"nothing was posted as {key} in {timeout_s:.3g} s")
            return self._texts[key]

    def check(self, key: str) -> bool:
        """See `Board`."""
        with self._changed:
            return key in self._texts

    def clear(self, prefix: str) -> None:
        """See `Board`; here nobody knows who put up what, so all of them go."""
        with self._changed:
            for key in [key for key in self._texts if key.startswith(prefix)]:
                del self._texts[key]


def read_until(
    board: Board, key: str, *, timeout_s: float, given_up: Callable[[], bool], slice_s: float = 0.25
) -> str:
    """Read a text, waiting in slices, so that somebody else can end the wait.

    Args:
        board: Where it will hang.
        key: Its key.
        timeout_s: The longest wait.
        given_up: Asked between slices: whether to stop waiting.
        slice_s: How long a slice is.

    Raises:
        TimeoutError: It was not put up in that time, or the wait was given up.
    """
    left_s = timeout_s
    while True:
        try:
            return board.read(key, min(slice_s, left_s))
        except TimeoutError:
            left_s -= slice_s
            if left_s <= 0 or given_up():
                raise
