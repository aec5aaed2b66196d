"""Keeps the newest entries of a job's progress within a memory limit."""

from distrain.jobs.job_view import AttemptStarted, Entry, Notice, Record

ENTRY_BYTES = 4096
"""Approximate size of an entry: a record with times by phase and loader and exchange metrics."""

RANK_BYTES = 32  # additional bytes for each rank


class EntryLog:
    """Entries numbered from 0; the oldest are dropped beyond `limit_bytes` (`None`: never).

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
        self.first = 0  # the number of the oldest entry that was not dropped
        self.last: dict[str, Record] = {}  # the newest record by split, also if it was dropped
        self._entries: list[Entry] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        """Return the number of all entries so far, with dropped ones: the next entry's number."""
        return self.first + len(self._entries)

    def append(self, entry: Entry) -> None:
        """Append an entry; drop the oldest ones that no longer fit."""
        self._entries.append(entry)
        if isinstance(entry, Record):
            self.last[entry.split] = entry
        self._held_bytes += _size_bytes(entry)
        self._forget()

    def limit(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._forget()

    def since(self, number: int) -> list[Entry]:
        """Return the entries from number `number` on, as far as they were not dropped."""
        return self._entries[max(0, number - self.first) :]

    def _forget(self) -> None:
        if self.limit_bytes is None:
            return
        dropped = 0
        while self._held_bytes > self.limit_bytes and dropped < len(self._entries) - 1:
            self._held_bytes -= _size_bytes(self._entries[dropped])
            dropped += 1
        del self._entries[:dropped]
        self.first += dropped


def _size_bytes(entry: Entry) -> int:
    match entry:
        case Record():
            return ENTRY_BYTES + RANK_BYTES * len(entry.stall_pct)
        case Notice():
            return ENTRY_BYTES + len(entry.text)
        case AttemptStarted():
            return ENTRY_BYTES
