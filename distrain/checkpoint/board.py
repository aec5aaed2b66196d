"""A notice board on which the ranks of a gang tell each other short texts, without a collective."""

import threading
import time
from typing import Protocol

_SLICE_S = 0.05


class Board(Protocol):
    """Texts under keys that all ranks of one attempt can read.

    Unlike a collective operation it may be used by a thread while the training is in the middle
    of a step, and nobody waits longer for a dead peer than they say. Every method may be called by
    any thread. A board that cannot be reached any more raises `OSError` or `RuntimeError`.

    What one rank must hear from all others goes through `add` and `take`: whoever adds the last
    text knows it from the count and tells the others, so that nobody asks after each rank.
    """

    def post(self, key: str, text: str) -> None:
        """Put a text up; one that hangs under this key already is replaced."""

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        """A text, for which it is waited at most `timeout_s` seconds.

        Args:
            key: Its key.
            timeout_s: The longest wait.
            given_up: Ends the wait when it is set.

        Raises:
            TimeoutError: None was put up in that time, or the wait was given up.
        """

    def check(self, key: str) -> bool:
        """Whether a text hangs under this key; does not wait."""

    def clear(self, prefix: str) -> None:
        """Take down the texts that this rank posted under keys that begin with `prefix`."""

    def add(self, key: str, text: str) -> int:
        """Put a text beside others under a key that is used for nothing else.

        Returns:
            How many were added so far, this one included. Who gets n finds n texts with `take`.
        """

    def take(self, key: str) -> list[str]:
        """Take down the texts that were added under a key; for one rank to call, once."""


class LocalBoard:
    """The board of a rank that has no peers; threads of one process may share it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._added: dict[str, list[str]] = {}
        self._changed = threading.Condition()

    def post(self, key: str, text: str) -> None:
        """See `Board`."""
        with self._changed:
            self._texts[key] = text
            self._changed.notify_all()

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        """See `Board`."""
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while key not in self._texts:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or (given_up is not None and given_up.is_set()):
                    raise not_posted(key, timeout_s)
                self._changed.wait(left_s if given_up is None else min(left_s, _SLICE_S))
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

    def add(self, key: str, text: str) -> int:
        """See `Board`."""
        with self._changed:
            added = self._added.setdefault(key, [])
            added.append(text)
            return len(added)

    def take(self, key: str) -> list[str]:
        """See `Board`."""
        with self._changed:
            return self._added.pop(key, [])


def not_posted(key: str, timeout_s: float) -> TimeoutError:
    """What `read` raises."""
    return TimeoutError(f"nothing was posted as {key} in {timeout_s:.3g} s")
