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
        self._name = name
        self._free = threading.BoundedSemaphore(most)

    def result(self, work: Callable[[], Result], within_s: float) -> Result:
        """Return a function's result, or raise its error.

        Raises NoAnswer after `within_s`; also if `most` earlier calls have still not ended then.
        """
        until_s = time.monotonic() + within_s
        if not self._free.acquire(timeout=within_s):
            raise NoAnswer
        future = Future[Result]()

        def call() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._free.release()

        threading.Thread(target=call, name=self._name, daemon=True).start()
        wait([future], max(0.0, until_s - time.monotonic()))
        if not future.done():
            raise NoAnswer
        return future.result()
