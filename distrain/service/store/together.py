"""Work of several threads in one transaction, so that they wait for the disk once."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

from distrain.errors import DistrainError

T = TypeVar("T")


@dataclass
class _Work:
    do: Callable[[Connection], Any]
    result: Any = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Together:
    """A batch of work by one thread: the first to come waits for the turn to write."""

    def __init__(self, write: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[_Work] = []

    def run(self, do: Callable[[Connection], T]) -> T:
        """Do some work in a transaction, and return when it is committed, or raise its error."""
        mine = _Work(do)
        with self._lock:
            self._waiting.append(mine)
            is_first = len(self._waiting) == 1
        if is_first:
            self._lead()
        else:
            mine.done.wait()
        if mine.error is not None:
            raise mine.error
        result: T = mine.result
        return result

    def _lead(self) -> None:
        batch: list[_Work] = []
        try:
            with self._write() as connection:
                batch = self._take()
                is_whole = _all_done(connection, batch)
                if not is_whole:
                    connection.rollback()
            if not is_whole:
                for work in batch:
                    self._alone(work)
        except BaseException as error:
            batch = batch or self._take()
            for work in batch:
                work.error = work.error or error
        finally:
            for work in batch:
                work.done.set()

    def _take(self) -> list[_Work]:
        with self._lock:
            batch, self._waiting = self._waiting, []
        return batch

    def _alone(self, work: _Work) -> None:
        work.result = work.error = None
        try:
            with self._write() as connection:
                work.result = work.do(connection)
        except BaseException as error:
            work.error = error


def _all_done(connection: Connection, batch: list[_Work]) -> bool:
    """Do all work, each undone alone if it refuses; false if the database itself failed in it."""
    for work in batch:
        try:
            if len(batch) == 1:
                work.result = work.do(connection)
                continue
            with connection.begin_nested():
                work.result = work.do(connection)
        except DistrainError as error:
            if len(batch) == 1:
                raise
            work.error = error
        except Exception:
            if len(batch) == 1:
                raise
            return False
    return True
