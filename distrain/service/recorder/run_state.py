"""A recorder's state of one run: the views that wait, and the time until they are written."""

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from distrain.jobs.view import Entry, JobView
from distrain.runs.served import ServedRun

LIMIT_ENTRIES = 2000  # that wait; more are missed, and read from the reports that ranks kept


class Mailbox:
    """Views that follow each other, given out as one; the last one's state counts.

    >>> from distrain.jobs.view import AttemptStarted; from distrain.jobs.states import JobState
    >>> view = JobView("a", "a", JobState.RUNNING, 1, 1, progress=(AttemptStarted(1, 0, 1),))
    >>> box = Mailbox()
    >>> box.add(view), box.add(view)
    (None, None)
    >>> both = box.take()
    >>> len(both.progress), both.missed, box.take()
    (2, 0, None)
    """

    def __init__(self) -> None:
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
        view, self.last = self.last, None
        if view is None:
            return None
        if len(view.progress) != len(self._entries) or view.missed != self._missed:
            view = replace(view, progress=tuple(self._entries), missed=self._missed)
        self._entries.clear()
        self._missed = 0
        return view

    def _drop(self) -> None:
        while len(self._entries) > LIMIT_ENTRIES:
            self._entries.popleft()
            self._missed += 1


STORE_PAUSE_S = 1.0  # how long an object store is left alone after it has taken views of a job
WRITES_PER_S = 125.0
MOST_PAUSE_S = 8.0
"""So many runs are written a second at most, if none waits for longer than this; few: at once."""


def pause_s(num_runs: int, remote: bool) -> float:
    """How long views of a job are collected after some were written, by the number of runs.

    >>> pause_s(100, remote=False), pause_s(500, remote=False), pause_s(5, remote=True)
    (0.0, 4.0, 1.0)
    """
    shared_s = num_runs / WRITES_PER_S
    enough_s = min(shared_s, MOST_PAUSE_S) if shared_s >= 1.0 else 0.0
    return max(enough_s, STORE_PAUSE_S if remote else 0.0)


@dataclass
class RunState:
    job_id: str
    place: str
    cluster: str
    first_attempt: int = 1  # of the view that waits
    served: ServedRun | None = None  # `None`: nothing was written yet
    writing: threading.Lock = field(default_factory=threading.Lock)
    waiting: Mailbox = field(default_factory=Mailbox)
    scheduled: bool = False
    pauses: bool = False  # whether what is scheduled waits for more views
    written_s: float = -math.inf  # when views were taken to be written last
    turn: int = 0  # of what was scheduled last; what has another number does nothing
    failures: int = 0
    problem: str | None = None
    finished: int | None = None  # the first attempt of the submission whose summary is written
    released: bool = False

    def serve(self, first_attempt: int, served: Callable[[str, str, int], ServedRun]) -> ServedRun:
        if self.served is None or self.served.first_attempt != first_attempt:
            if self.served is not None:
                self.served.forget()
                self.finished = None
            self.served = served(self.place, self.job_id, first_attempt)
        return self.served

    def schedule(self, *, pauses: bool = False) -> int:
        """Note that its views are about to be written, and return the turn."""
        self.scheduled, self.pauses = True, pauses
        self.turn += 1
        return self.turn
