"""Calls functions with a timeout, since their filesystem or database may hang."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")


class NoAnswer(Exception):
    """A call had no result in time, or could not start; a started call continues in its thread."""


class BoundedCalls:
    """Calls each function in a new daemon thread; at most `most` calls run at the same time."""

    def __init__(self, name: str, most: int = 1):
        self._name, self._most = name, most
        self._free = threading.BoundedSemaphore(most)
        self._running_since_s: list[float] = []

    def result(self, work: Callable[[], Result], timeout_s: float) -> Result:
        """Return the result of `work`, or raise its error.

        Raises NoAnswer if there is no result within `timeout_s`, which includes the wait for
        earlier calls if `most` of them are running. Raises it at once if these have run for
        `timeout_s` already: otherwise each call of a long series, for example one per job, would
        wait again.
        """
        now_s = time.monotonic()
        late = [since_s for since_s in self._running_since_s if now_s - since_s >= timeout_s]
        if len(late) >= self._most or not self._free.acquire(timeout=timeout_s):
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
        wait([future], max(0.0, now_s + timeout_s - time.monotonic()))
        if not future.done():
            raise NoAnswer
        return future.result()
