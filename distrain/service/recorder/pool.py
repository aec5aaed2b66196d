"""A few threads for work that may hang in a filesystem."""

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from distrain.errors import Unavailable

WIDTH = 4  # how many threads work at once, unless some hang
MOST = 16  # how many there are at most, with those that hang
HUNG_S = 5.0  # after how long a thread counts as hung, and another takes its place


class Pool:
    """Daemon threads, started as they are needed, for work that must not raise.

    Of work that comes at once, only the first wakes a thread, and each thread that takes some wakes
    the next: few are woken for much short work, and one that hangs keeps none from it.
    """

    def __init__(self, name: str):
        self._name = name
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._begun_s: dict[int, float] = {}  # by thread, when it began what it does
        self._threads = 0
        self._idle = 0
        self._called = False  # whether a thread was woken or started that has not come yet
        self._closed = False

    def put(self, work: Callable[[], None], delay_s: float = 0.0) -> None:
        """Do some work, at the earliest after a delay; never waits."""
        with self._changed:
            if self._closed:
                return
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), work))
            self._wake_one()

    def call(self, work: Callable[[], Any], within_s: float, what: str) -> Any:
        """Do some work, and wait for what it returns or raises; Unavailable: it takes longer."""
        done, results, errors = threading.Event(), list[Any](), list[BaseException]()

        def attempt() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)
            done.set()

        self.put(attempt)
        if not done.wait(within_s):
            raise Unavailable(
                f"the filesystem did not answer for {within_s:g} s",
                where={"path": what},
                hint="Look at its mount on the service's host.",
            )
        if errors:
            raise errors[0]
        return results[0]

    def close(self, within_s: float) -> bool:
        """Take no more work, do what is due later now, and say whether that was in time."""
        ends_s = time.monotonic() + within_s
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._threads and (left_s := ends_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return not self._threads

    def _wake_one(self) -> None:
        if self._called:
            return
        if self._idle:
            self._called = True
            self._changed.notify()
            return
        now_s = time.monotonic()
        hung = sum(now_s - begun_s > HUNG_S for begun_s in self._begun_s.values())
        if self._threads < min(WIDTH + hung, MOST):
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._threads += 1
            self._called = True

    def _run(self) -> None:
        me = threading.get_ident()
        while (work := self._next(me)) is not None:
            work()
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _next(self, me: int) -> Callable[[], None] | None:
        with self._changed:
            if self._begun_s.pop(me, None) is None:
                self._called = False  # it has just been started
            while True:
                now_s = time.monotonic()
                if self._due and (self._closed or self._due[0][0] <= now_s):
                    self._begun_s[me] = now_s
                    work = heapq.heappop(self._due)[2]
                    if self._due:
                        self._wake_one()
                    return work
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait(self._due[0][0] - now_s if self._due else None)
                self._idle -= 1
                self._called = False
