"""The entries of a job's progress, within a limit: the oldest are forgotten."""

from distrain.jobs.view import AttemptStarted, Entry, Notice, Record

ENTRY_BYTES = 4096
"""What an entry takes, about: a record with figures by phase, of the loader, of the exchange."""

RANK_BYTES = 32  # what it takes more for each rank


class EntryLog:
    """Entries under numbers that stay when older ones are forgotten; `None` bytes keep all.

    >>> kept = EntryLog(limit_bytes=3 * ENTRY_BYTES)
    >>> for attempt in range(1, 6):
    ...     kept.append(AttemptStarted(attempt, step=0, num_ranks=2))
    >>> len(kept), kept.first
    (5, 2)
    >>> [entry.attempt for entry in kept.since(4)]
    [5]
    """

    def __init__(self, limit_bytes: int | None = None):
        self.limit_bytes = limit_bytes
        self.first = 0
        self.last: dict[str, Record] = {}  # the newest by split, also when forgotten
        self._entries: list[Entry] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        """The number of the next entry: of all that there ever were."""
        return self.first + len(self._entries)

    def append(self, entry: Entry) -> None:
        """Add the newest entry; the oldest that no longer fit are forgotten."""
        self._entries.append(entry)
        if isinstance(entry, Record):
            self.last[entry.split] = entry
        self._held_bytes += _size_bytes(entry)
        self._forget()

    def limit(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._forget()

    def since(self, number: int) -> list[Entry]:
        return self._entries[max(0, number - self.first) :]

    def _forget(self) -> None:
        if self.limit_bytes is None:
            return
        gone = 0
        while self._held_bytes > self.limit_bytes and gone < len(self._entries) - 1:
            self._held_bytes -= _size_bytes(self._entries[gone])
            gone += 1
        del self._entries[:gone]
        self.first += gone


def _size_bytes(entry: Entry) -> int:
    match entry:
        case Record():
            return ENTRY_BYTES + RANK_BYTES * len(entry.stall_pct)
        case Notice():
            return ENTRY_BYTES + len(entry.text)
        case AttemptStarted():
            return ENTRY_BYTES
