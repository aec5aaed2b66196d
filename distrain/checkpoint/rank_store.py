"""Short texts that the ranks of an attempt exchange through a store, without a collective."""

import threading
import time
from typing import Protocol

_SLICE_S = 0.05


class RankStore(Protocol):
    """Texts under keys that all ranks of one attempt can read.

    Unlike a collective operation it may be used by any thread, in the middle of a step, and no
    caller waits longer for a dead peer than its timeout. A store that cannot be reached any more
    raises `OSError` or `RuntimeError`.

    Who needs a text of every other rank uses `add` and `take`: the rank that adds the last text
    sees so in the count and posts it, so that nobody asks for each rank's text.
    """

    def post(self, key: str, text: str) -> None: ...

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        """A key's text; a `TimeoutError` after `timeout_s` seconds, or once `given_up` is set."""

    def check(self, key: str) -> bool: ...

    def clear(self, prefix: str) -> None:
        """Delete the texts that this rank posted under keys that begin with `prefix`."""

    def add(self, key: str, text: str) -> int:
        """Add a text under a key that is used for nothing else, and return the number of texts.

        Who gets n finds n texts with `take`.
        """

    def take(self, key: str) -> list[str]:
        """Remove and return the texts that were added to a key; for one rank to call, once."""

    def decide(self, key: str, text: str) -> str:
        """Set the text of a key unless it has one, and return the one that all callers get."""


class LocalRankStore:
    """The store of a rank without peers, and of several ranks in threads of one process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._added: dict[str, list[str]] = {}
        self._changed = threading.Condition()

    def post(self, key: str, text: str) -> None:
        with self._changed:
            self._texts[key] = text
            self._changed.notify_all()

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while key not in self._texts:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or (given_up is not None and given_up.is_set()):
                    raise not_posted(key, timeout_s)
                self._changed.wait(left_s if given_up is None else min(left_s, _SLICE_S))
            return self._texts[key]

    def check(self, key: str) -> bool:
        with self._changed:
            return key in self._texts

    def clear(self, prefix: str) -> None:
        """Delete the texts of all ranks: who posted them is not kept."""
        with self._changed:
            for key in [key for key in self._texts if key.startswith(prefix)]:
                del self._texts[key]

    def add(self, key: str, text: str) -> int:
        with self._changed:
            added = self._added.setdefault(key, [])
            added.append(text)
            return len(added)

    def take(self, key: str) -> list[str]:
        with self._changed:
            return self._added.pop(key, [])

    def decide(self, key: str, text: str) -> str:
        with self._changed:
            self._changed.notify_all()
            return self._texts.setdefault(key, text)


def not_posted(key: str, timeout_s: float) -> TimeoutError:
    return TimeoutError(f"nothing was posted as {key} in {timeout_s:.3g} s")
