"""Calls functions with a timeout, since their filesystem or database may hang."""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

Result = TypeVar("Result")


class NoAnswer(Exception):
    """A call had no result in time, or could not start; a started call continues in its thread."""


class BoundedCalls:
    """Calls each function in a new daemon thread; at most `most` calls run at the same time."""

    def __init__(self, name: str, most: int = 1):
        self._name, self._most = name, most
        self._free = threading.BoundedSemaphore(most)
        self._running_since_s: dict[Hashable, float] = {}

    def result(self, work: Callable[[], Result], timeout_s: float, key: Hashable = None) -> Result:
        """Return the result of `work`, or raise its error.

        Raises NoAnswer if there is no result within `timeout_s`, which includes the wait for
        earlier calls if `most` of them are running. Raises it at once if these have run for
        `timeout_s` already: otherwise each call of a long series, for example one per job, would
        wait again. Also raises it at once if an earlier call with the same `key` is still running;
        by default, calls have different keys.
        """
        key = object() if key is None else key
        now_s, running = time.monotonic(), self._running_since_s
        late = [since_s for since_s in list(running.values()) if now_s - since_s >= timeout_s]
        if key in running or len(late) >= self._most or not self._free.acquire(timeout=timeout_s):
            raise NoAnswer
        future = Future[Result]()
        running[key] = time.monotonic()

        def call() -> None:
            try:
                tell = partial(future.set_result, work())
            except BaseException as error:
                tell = partial(future.set_exception, error)
            del running[key]  # before the result, as the next call may have the same key
            self._free.release()
            tell()

        threading.Thread(target=call, name=self._name, daemon=True).start()
        wait([future], max(0.0, now_s + timeout_s - time.monotonic()))
        if not future.done():
            raise NoAnswer
        return future.result()
