"""A bounded channel from one producing thread to one consumer.

Every item is a `Ready` batch, a `Failure` or the `End`. The consumer learns only from the items how
the producer ended, not from the state of its thread. Neither side polls: each sleeps until the
other side, or `close`, wakes it.

A garbage collection may drop an iterator, and so close its channel, at any moment in any thread,
including the producer's own. So this module uses no locks and conditions: if a thread closed the
channel itself between checking a condition and sleeping, it would never wake up. `SimpleQueue` is
reentrant, and stores an item, which wakes a thread, until a thread takes it.
"""

import contextlib
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any


@dataclass(frozen=True)
class Failure:
    error: BaseException


@dataclass(frozen=True)
class End:
    """The producer has no more batches."""


@dataclass(frozen=True)
class Ready:
    batch: Any
    rows: int = 0


Item = Ready | Failure | End


class Channel:
    """Holds at most `capacity` batches; the producer waits for space before it makes one."""

    def __init__(self, capacity: int):
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        for _ in range(capacity):
            self._room.put(None)

    def wait_for_space(self) -> bool:
        """Sleep until there is space for one more batch; return False if the channel was closed."""
        if not self._closed:
            self._room.get()
        return not self._closed

    def put(self, item: Item) -> None:
        """Pass an item to the consumer; if the channel is closed, the item is dropped."""
        self._items.put(item)
        if self._closed:
            self.close()  # drops it

    def get(self) -> Item:
        """Sleep until there is an item and return it; an `End` if the channel was closed."""
        item = End() if self._closed else self._items.get()
        if self._closed:
            self._items.put(End())  # wakes another sleeping thread
            return End()
        if isinstance(item, Ready):
            self._room.put(None)
        return item

    def is_closed(self) -> bool:
        return self._closed

    @property
    def depth(self) -> int:
        return self._items.qsize()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(Empty):
            while True:
                self._items.get_nowait()
        self._items.put(End())
        self._room.put(None)
