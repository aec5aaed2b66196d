"""A bounded channel from one producing thread to one consumer.

Every item is a `Ready` batch, a `Failure` or the `End`: the consumer learns what became of the
producer from the items alone, never from whether its thread lives. Nobody polls: both sides sleep
on a condition and are woken by the other, or by `close`.
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """The producer ended with this error."""

    error: BaseException


@dataclass(frozen=True)
class End:
    """The producer gave all it had."""


@dataclass(frozen=True)
class Ready:
    """A batch, or what was made of it."""

    batch: Any


Item = Ready | Failure | End


class Channel:
    """Holds at most `capacity` batches.

    The producer asks for room before it makes a batch, so no finished batch waits outside.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._items: deque[Item] = deque()
        self._closed = False
        # Re-entrant, since a garbage collection inside a critical section may call `close`.
        self._changed = threading.Condition(threading.RLock())

    def wait_for_room(self) -> bool:
        """Sleep until there is room for a batch; false if the channel was closed."""
        with self._changed:
            while len(self._items) >= self._capacity and not self._closed:
                self._changed.wait()
            return not self._closed

    def put(self, item: Item) -> None:
        """Hand over an item; it is dropped if the channel was closed."""
        with self._changed:
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()

    def get(self) -> Item:
        """Sleep until there is an item and take it; an `End` if the channel was closed."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            item = self._items.popleft() if self._items else End()
            self._changed.notify_all()
            return item

    @property
    def depth(self) -> int:
        """How many items wait."""
        return len(self._items)

    def close(self) -> None:
        """Drop what is held, and let both sides go."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
