"""Calls functions that may hang, with their filesystem or database, for a bounded time."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")


class NoAnswer(Exception):
    """A call takes longer than allowed; it continues in its thread, and may hang for ever."""


class BoundedCalls:
    """Calls each function in a daemon thread of its own; at most `most` at a time."""

    def __init__(self, name: str, most: int = 1):
        self._name, self._most = name, most
        self._free = threading.BoundedSemaphore(most)
        self._running_since_s: list[float] = []

    def result(self, work: Callable[[], Result], within_s: float) -> Result:
        """Return a function's result, or raise its error.

        Raises NoAnswer after `within_s`, also if `most` earlier calls have still not ended then. If
        these run for `within_s` already, raises it at once: many calls in a row, for example one
        per job, would otherwise wait that long each.
        """
        now_s = time.monotonic()
        late = [since_s for since_s in self._running_since_s if now_s - since_s >= within_s]
        if len(late) >= self._most or not self._free.acquire(timeout=within_s):
            raise NoAnswer
        future, since_s = Future[Result](), time.monotonic()
        self._running_since_s.append(since_s)

        def call() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._running_since_s.remove(since_s)
                self._free.release()

        threading.Thread(target=call, name=self._name, daemon=True).start()
        wait([future], max(0.0, now_s + within_s - time.monotonic()))
        if not future.done():
            raise NoAnswer
        return future.result()
