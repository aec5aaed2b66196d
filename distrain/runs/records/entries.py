"""Keeps the newest entries of a job's progress in bounded memory."""

from collections import deque
from itertools import islice

from distrain.jobs.job_view import Entry

KEPT_ENTRIES = 1024
"""Enough for some minutes; commands that follow a job read new entries 5 times a second."""


class EntryLog:
    """Entries numbered from 0; only the newest `limit` are kept.

    >>> kept = EntryLog(limit=3)
    >>> for entry in "abcde":
    ...     kept.append(entry)
    >>> len(kept), kept.since(4), kept.since(0)
    (5, ['e'], ['c', 'd', 'e'])
    """

    def __init__(self, limit: int = KEPT_ENTRIES):
        self._entries = deque[Entry](maxlen=limit)
        self._total = 0

    def __len__(self) -> int:
        """Return the number of all entries so far, with dropped ones: the next entry's number."""
        return self._total

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._total += 1

    def limit(self, limit: int) -> None:
        """Drop the oldest entries now, and keep at most `limit` from now on."""
        self._entries = deque(self._entries, limit)

    def since(self, number: int) -> list[Entry]:
        """Return the entries from number `number` on, as far as they were not dropped."""
        first = self._total - len(self._entries)
        return list(islice(self._entries, max(0, number - first), None))
