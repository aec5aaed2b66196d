"""Which jobs changed since a revision, and how many entries of progress each had then. Pure.

Every change of a job gets a revision of its own, so that an answer may end between any two jobs: it
names the revision of the last job in it, and the next answer goes on there.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field

MOST_STAMPS = 1024
"""Of one job. Beyond, every second one is dropped: who asks from there gets entries again."""


@dataclass
class _Stamps:
    revisions: "array[int]" = field(default_factory=lambda: array("q"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))  # of entries

    def add(self, revision: int, count: int) -> None:
        self.revisions.append(revision)
        self.counts.append(count)
        if len(self.revisions) > MOST_STAMPS:  # never the newest
            del self.revisions[1:-1:2], self.counts[1:-1:2]

    def count_at(self, revision: int) -> int:
        place = bisect_right(self.revisions, revision)
        return self.counts[place - 1] if place else 0

    def drop(self, after: int, until: int) -> None:
        span = slice(bisect_right(self.revisions, after), bisect_right(self.revisions, until))
        del self.revisions[span], self.counts[span]


class Revisions:
    """The revisions of all jobs.

    >>> revisions = Revisions()
    >>> revisions.stamp("a", count=3), revisions.stamp("b", count=0), revisions.stamp("a", count=5)
    (1, 2, 3)
    >>> revisions.changed_since(1), revisions.changed_since(2)
    ([('b', 2), ('a', 3)], [('a', 3)])
    >>> revisions.count_at("a", 0), revisions.count_at("a", 2), revisions.count_at("a", 3)
    (0, 3, 5)
    """

    def __init__(self) -> None:
        self.newest = 0
        self._stamps: dict[str, _Stamps] = {}
        self._last: OrderedDict[str, int] = OrderedDict()  # ascending

    def stamp(self, job_id: str, count: int) -> int:
        """Give a changed job, which has `count` entries now, the next revision."""
        self.newest += 1
        self._stamps.setdefault(job_id, _Stamps()).add(self.newest, count)
        self._last[job_id] = self.newest
        self._last.move_to_end(job_id)
        return self.newest

    def last(self, job_id: str) -> int:
        """The revision of a job's last change; 0 if it is unknown."""
        return self._last.get(job_id, 0)

    def count_at(self, job_id: str, revision: int) -> int:
        """How many entries a job had at a revision, or fewer: never more."""
        stamps = self._stamps.get(job_id)
        return stamps.count_at(revision) if stamps else 0

    def leave_out(self, job_id: str, after: int, until: int) -> None:
        """Forget a job's changes between two revisions, which an answer left out: they come later.

        Readers that had those changes get the entries again.

        >>> revisions = Revisions()
        >>> [revisions.stamp(job, count=n) for n, job in enumerate("abaca", start=1)]
        [1, 2, 3, 4, 5]
        >>> revisions.leave_out("a", after=1, until=4)
        >>> [revisions.count_at("a", revision) for revision in range(1, 6)]
        [1, 1, 1, 1, 5]
        """
        stamps = self._stamps.get(job_id)
        if stamps is not None:
            stamps.drop(after, until)

    def changed_since(self, revision: int) -> list[tuple[str, int]]:
        """Jobs that changed after a revision, each with its last revision, in that order."""
        changed = []
        for job_id, last in reversed(self._last.items()):
            if last <= revision:
                break
            changed.append((job_id, last))
        return changed[::-1]

    def forget(self, job_id: str) -> None:
        self._stamps.pop(job_id, None)
        self._last.pop(job_id, None)
