"""What waits to be recorded of one job, within a limit."""

from collections import deque
from dataclasses import replace

from distrain.jobs import Entry, JobView

LIMIT_ENTRIES = 2000
"""Entries that wait at most. More are counted as missed: the ranks' kept reports have them."""


class Mailbox:
    """Views that follow each other, given out as one; the last one's state counts.

    >>> from distrain.jobs import AttemptStarted, JobState
    >>> view = JobView("a", "a", JobState.RUNNING, 1, 1, progress=(AttemptStarted(1, 0, 1),))
    >>> box = Mailbox()
    >>> box.add(view), box.add(view)
    (None, None)
    >>> both = box.take()
    >>> len(both.progress), both.missed, box.take()
    (2, 0, None)
    """

    def __init__(self, limit: int = LIMIT_ENTRIES):
        self._limit = limit
        self._entries: deque[Entry] = deque()
        self._missed = 0
        self.last: JobView | None = None

    def __bool__(self) -> bool:
        return self.last is not None

    def add(self, view: JobView) -> None:
        self._entries.extend(view.progress)
        self._missed += view.missed
        self.last = view
        self._drop()

    def put_back(self, view: JobView) -> None:
        """Put a view that was taken before those that have come since."""
        self._entries.extendleft(reversed(view.progress))
        self._missed += view.missed
        self.last = self.last or view
        self._drop()

    def take(self) -> JobView | None:
        """All that waits as one view; `None`: nothing does."""
        view, self.last = self.last, None
        if view is None:
            return None
        if len(view.progress) != len(self._entries) or view.missed != self._missed:
            view = replace(view, progress=tuple(self._entries), missed=self._missed)
        self._entries.clear()
        self._missed = 0
        return view

    def _drop(self) -> None:
        while len(self._entries) > self._limit:
            self._entries.popleft()
            self._missed += 1
