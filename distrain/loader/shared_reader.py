"""One reader for all epochs of a loader: what it learned of the files stays, open files do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from distrain.loader.reader import Decoded, Reader
from distrain.partition import RowGroup


class SharedReader:
    """Leases a reader to epochs, and closes it when nobody uses it.

    Readers learn things that are dear to learn again (footers, layouts), so a closed reader can be
    used anew.

    Args:
        make: Makes the reader when it is needed first.
    """

    def __init__(self, make: Callable[[], Reader]):
        self._make = make
        self._reader: Reader | None = None
        self._users = 0
        self._lock = threading.Lock()

    def lease(self) -> Reader:
        """The reader, until the lease is closed."""
        with self._lock:
            if self._reader is None:
                self._reader = self._make()
            self._users += 1
            return _Lease(self._reader, self._give_back)

    def _give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._reader is not None:
                self._reader.close()


class _Lease:
    """A reader that others may be using, too."""

    def __init__(self, reader: Reader, give_back: Callable[[], None]):
        self.name = reader.name
        self.read: Callable[[RowGroup], Decoded] = reader.read
        self.read_in_parts: Callable[[RowGroup], Iterator[Decoded]] = reader.read_in_parts
        self._give_back: Callable[[], None] | None = give_back

    def close(self) -> None:
        """Say that the reader is not needed any more; may be called again."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
