"""Exchange of texts and errors between ranks, in collective operations or through a store."""

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.distributed import HashStore, Store

from distrain.errors import DataError, DistrainError, OutputError, SpecError, Unavailable
from distrain.models.embeddings.peers import Peers, gather_texts
from distrain.storage.urls import is_remote
from distrain.train.checkpoint.manifest import Damaged

_FIRST_PAUSE_S = 0.01
_GROWTH = 1.5
_LONGEST_PAUSE_S = 0.5

# The most severe first: a rank that cannot read at all cannot detect damage.
_ERRORS: dict[str, type[DistrainError]] = {
    "spec": SpecError,
    "output": OutputError,
    "refused": DataError,
    "unavailable": Unavailable,
    "damaged": Damaged,
}


class RankStore:
    """Texts by key that all ranks of one attempt can read, in one of torch's stores.

    Unlike a collective operation, it may be used by any thread, during a step. No caller waits
    longer for a dead peer than its timeout. If the store cannot be reached, methods raise `OSError`
    or `RuntimeError`.

    To collect a text from each rank, every rank calls `add`. The rank that adds the last text
    (`add` returns the count) then posts a text under another key. One rank waits for that key, and
    calls `take`. So no rank requests the texts one by one.

    Args:
        store: A separate client with keys that no other code uses. `None` is for a single rank, and
            for ranks in threads of one process that share this object.
        waiting: Returns a context in which `read` waits for other ranks.
    """

    def __init__(
        self,
        store: Store | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self._store = HashStore() if store is None else store
        self._waiting = waiting
        self._own: set[str] = set()
        self._lock = threading.Lock()

    def post(self, key: str, text: str) -> None:
        with self._lock:
            self._own.add(key)
        self._store.set(key, text)

    def read(self, key: str, timeout_s: float, given_up: threading.Event | None = None) -> str:
        """Return a key's text; waits until it is posted.

        Raises `TimeoutError` after `timeout_s` seconds, or once `given_up` is set.
        """
        # A store's client runs one call at a time: a call that waits would block all others.
        given_up = given_up or threading.Event()
        until_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
        with self._waiting():
            while not self.check(key):
                left_s = until_s - time.monotonic()
                if left_s <= 0 or given_up.wait(min(pause_s, left_s)):
                    raise TimeoutError(f"nothing was posted as {key} in {timeout_s:.3g} s")
                pause_s = min(_GROWTH * pause_s, _LONGEST_PAUSE_S)
        return self._text(key)

    def _text(self, key: str) -> str:
        text: bytes = self._store.get(key)
        return text.decode()

    def check(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def clear(self, prefix: str) -> None:
        """Delete the texts that this rank posted under keys that begin with `prefix`."""
        with self._lock:
            keys = [key for key in self._own if key.startswith(prefix)]
            self._own.difference_update(keys)
        for key in keys:
            self._store.delete_key(key)

    def add(self, key: str, text: str) -> int:
        """Add a text to the list of a key; return the number of texts so far.

        The key must be used only with `add` and `take`. After a caller got `n`, `take` returns at
        least `n` texts.
        """
        # Append before counting, so that `take` finds every text counted. torch lacks the
        # annotation.
        self._store.append(key, json.dumps(text) + "\n")  # type: ignore[attr-defined]
        return int(self._store.add(_count_of(key), 1))

    def take(self, key: str) -> list[str]:
        """Remove and return the texts added to a key; call it on one rank only, once per key."""
        if not self.check(key):
            return []
        lines = self._text(key).splitlines()
        for taken in (key, _count_of(key)):
            self._store.delete_key(taken)
        return [json.loads(line) for line in lines]

    def decide(self, key: str, text: str) -> str:
        """Set a key's text, unless a rank has set it already; return the text that it has now.

        All callers get the same text, that of the first.
        """
        with self._lock:
            self._own.add(key)
        won: bytes = self._store.compare_set(key, "", text)
        return won.decode()


def _count_of(key: str) -> str:
    return f"{key}/count"


@contextmanager
def fail_on_all_ranks(peers: Peers, device: torch.device, url: str) -> Iterator[None]:
    """Return a context that raises, on all ranks, the most severe error of any rank inside it.

    Leaving the context is a collective operation. These errors are exchanged, the most severe
    first: SpecError, OutputError, DataError, Unavailable, Damaged. An OSError becomes Unavailable,
    or Damaged if it is an I/O error (EIO) and `url` is a local path. Other errors are raised only
    on their rank, and the other ranks wait for it until their timeout.
    """
    kind, message, hint = "", "", None
    try:
        yield
    except (SpecError, OutputError, DataError, Unavailable) as error:
        kind = next(kind for kind, raised in reversed(_ERRORS.items()) if isinstance(error, raised))
        message, hint = on_one_line(error), error.hint
    except OSError as error:
        # A disk that cannot read a sector has lost it. Other errors may be temporary: a server that
        # does not answer now must not restart a training from its beginning.
        broken = error.errno == errno.EIO and not is_remote(url)
        kind, message = "damaged" if broken else "unavailable", f"cannot be read: {error}"
    texts = gather_texts(peers, device, json.dumps([kind, message, hint]))
    outcomes = [json.loads(text) for text in texts]
    for wanted, raised in _ERRORS.items():
        for rank, (kind, message, hint) in enumerate(outcomes):
            if kind == wanted:
                raise raised(message, where={"seen by rank": rank}, hint=hint)


def on_one_line(error: DistrainError) -> str:
    places = ", ".join(f"{place}: {value}" for place, value in error.where.items())
    return f"{error.message} ({places})" if places else error.message
