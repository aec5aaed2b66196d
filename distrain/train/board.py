"""The ranks' notice board: keys in the store that the coordinator opened for the gang."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from distrain.checkpoint import Board, LocalBoard
from distrain.checkpoint.board import not_posted
from distrain.train.assignment import Rendezvous
from distrain.train.whereabouts import PEERS, waiting

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_FIRST_PAUSE_S = 0.01
_GROWTH = 1.5
_LONGEST_PAUSE_S = 0.5


class DecidingBoard(Board, Protocol):
    """A board on which one of several texts can win."""

    def decide(self, key: str, text: str) -> str:
        """Put a text up unless one hangs under this key already.

        Returns:
            The one that hangs there now, the same for everybody who calls this.
        """


class StoreBoard:
    """A board in one of torch's stores.

    A store's client answers one call at a time, so that a call which waits would hold up all
    others: nothing here waits inside the store. Who waits asks again, after pauses that grow.

    Args:
        store: A client of its own, whose keys nobody else uses.
    """

    def __init__(self, store: Store):
        self._store = store
        self._own: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def join(cls, meeting: Rendezvous, timeout_s: float) -> StoreBoard:
        """The board of the ranks that meet there."""
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

        timeout = timedelta(seconds=timeout_s)
        store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
        return cls(PrefixStore(f"{meeting.prefix}/board", store))

    def post(self, key: str, text: str) -> None:
        """See `Board`."""
        with self._lock:
            self._own.add(key)
        self._store.set(key, text)

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        """See `Board`."""
        with waiting(PEERS):
            self._wait(key, timeout_s, given_up or threading.Event())
        return self._text(key)

    def _wait(self, key: str, timeout_s: float, given_up: threading.Event) -> None:
        until_s = time.monotonic() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while not self.check(key):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or given_up.wait(min(pause_s, left_s)):
                raise not_posted(key, timeout_s)
            pause_s = min(_GROWTH * pause_s, _LONGEST_PAUSE_S)

    def _text(self, key: str) -> str:
        text: bytes = self._store.get(key)
        return text.decode()

    def check(self, key: str) -> bool:
        """See `Board`."""
        return bool(self._store.check([key]))

    def clear(self, prefix: str) -> None:
        """See `Board`."""
        with self._lock:
            keys = [key for key in self._own if key.startswith(prefix)]
            self._own.difference_update(keys)
        for key in keys:
            self._store.delete_key(key)

    def add(self, key: str, text: str) -> int:
        """See `Board`."""
        # Before it is counted. torch has not annotated it.
        self._store.append(key, json.dumps(text) + "\n")  # type: ignore[attr-defined]
        return int(self._store.add(_count_of(key), 1))

    def take(self, key: str) -> list[str]:
        """See `Board`."""
        if not self.check(key):
            return []
        lines = self._text(key).splitlines()
        for taken in (key, _count_of(key)):
            self._store.delete_key(taken)
        return [json.loads(line) for line in lines]

    def decide(self, key: str, text: str) -> str:
        """See `DecidingBoard`."""
        with self._lock:
            self._own.add(key)
        won: bytes = self._store.compare_set(key, "", text)
        return won.decode()


class LocalDecidingBoard(LocalBoard):
    """The board of a rank without peers, and of several that are threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._deciding = threading.Lock()

    def decide(self, key: str, text: str) -> str:
        """See `DecidingBoard`."""
        with self._deciding:
            if not self.check(key):
                self.post(key, text)
            return self.read(key, 0.0)


def _count_of(key: str) -> str:
    return f"{key}/count"
