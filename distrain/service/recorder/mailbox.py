"""What waits to be recorded of one job, within a limit. Pure."""

from dataclasses import replace

from distrain.jobs import JobView

LIMIT_ENTRIES = 2000
"""Entries that wait at most. More are counted as missed: the ranks' kept reports have them."""


def joined(earlier: JobView | None, later: JobView, limit: int = LIMIT_ENTRIES) -> JobView:
    """Two views that follow each other as one; the later one's state counts.

    >>> from distrain.jobs import AttemptStarted, JobState
    >>> view = JobView("a", "a", JobState.RUNNING, 1, 1, progress=(AttemptStarted(1, 0, 1),))
    >>> both = joined(view, view)
    >>> len(both.progress), both.missed
    (2, 0)
    """
    entries = later.progress if earlier is None else (*earlier.progress, *later.progress)
    missed = later.missed + (earlier.missed if earlier else 0)
    dropped = max(0, len(entries) - limit)
    return replace(later, progress=entries[dropped:], missed=missed + dropped)
