"""The ranks' store: keys in the torch store that the coordinator opened for the gang."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from distrain.checkpoint import not_posted
from distrain.jobs import Rendezvous
from distrain.train.timing import PEERS, waiting

if TYPE_CHECKING:
    from torch.distributed import Store

_FIRST_PAUSE_S = 0.01
_GROWTH = 1.5
_LONGEST_PAUSE_S = 0.5


class TorchRankStore:
    """A `RankStore` in one of torch's stores.

    A store's client answers one call at a time, so a call that waits inside it would hold up all
    others: a wait polls, after pauses that grow.

    Args:
        store: A client of its own, with keys that nobody else uses.
    """

    def __init__(self, store: Store):
        self._store = store
        self._own: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def join(cls, meeting: Rendezvous, timeout_s: float) -> TorchRankStore:
        from torch.distributed import PrefixStore, TCPStore

        timeout = timedelta(seconds=timeout_s)
        store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
        return cls(PrefixStore(f"{meeting.prefix}/board", store))

    def post(self, key: str, text: str) -> None:
        with self._lock:
            self._own.add(key)
        self._store.set(key, text)

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        given_up = given_up or threading.Event()
        until_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
        with waiting(PEERS):
            while not self.check(key):
                left_s = until_s - time.monotonic()
                if left_s <= 0 or given_up.wait(min(pause_s, left_s)):
                    raise not_posted(key, timeout_s)
                pause_s = min(_GROWTH * pause_s, _LONGEST_PAUSE_S)
        return self._text(key)

    def _text(self, key: str) -> str:
        text: bytes = self._store.get(key)
        return text.decode()

    def check(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def clear(self, prefix: str) -> None:
        with self._lock:
            keys = [key for key in self._own if key.startswith(prefix)]
            self._own.difference_update(keys)
        for key in keys:
            self._store.delete_key(key)

    def add(self, key: str, text: str) -> int:
        # Before it is counted. torch has not annotated it.
        self._store.append(key, json.dumps(text) + "\n")  # type: ignore[attr-defined]
        return int(self._store.add(_count_of(key), 1))

    def take(self, key: str) -> list[str]:
        if not self.check(key):
            return []
        lines = self._text(key).splitlines()
        for taken in (key, _count_of(key)):
            self._store.delete_key(taken)
        return [json.loads(line) for line in lines]

    def decide(self, key: str, text: str) -> str:
        with self._lock:
            self._own.add(key)
        won: bytes = self._store.compare_set(key, "", text)
        return won.decode()


def _count_of(key: str) -> str:
    return f"{key}/count"
