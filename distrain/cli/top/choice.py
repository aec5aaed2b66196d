"""Which jobs `distrain top` lists, in which order, and which of them it shows. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

ENDED = frozenset({"succeeded", "failed", "cancelled"})

Document = Mapping[str, Any]


def chosen(jobs: Sequence[Document], job_id: str | None) -> str | None:
    """The job whose ranks are shown: asked for, else the newest that goes on, else the newest."""
    if job_id is not None:
        return job_id
    going_on = [job["job_id"] for job in jobs if job["state"] not in ENDED]
    return next(iter(going_on or [job["job_id"] for job in jobs]), None)


def listed(jobs: Sequence[Document]) -> list[Document]:
    """Jobs in the order of the table: those that go on, then those that ended."""
    return sorted(jobs, key=lambda job: job["state"] in ENDED)


def moved(jobs: Sequence[Document], job_id: str | None, by: int) -> str | None:
    """The job some rows further down the table; its first or last where there is no such row.

    >>> jobs = [{"job_id": "b", "state": "failed"}, {"job_id": "a", "state": "running"}]
    >>> moved(jobs, "a", 1), moved(jobs, "b", 1), moved(jobs, "gone", 1), moved([], None, 1)
    ('b', 'b', 'a', None)
    """
    ids = [str(job["job_id"]) for job in listed(jobs)]
    if job_id not in ids:
        return next(iter(ids), None)
    return ids[min(max(ids.index(job_id) + by, 0), len(ids) - 1)]


def around(jobs: list[Document], job_id: str | None, room: int) -> list[Document]:
    """As many jobs as there is room for, one of them among these.

    >>> [job["job_id"] for job in around([{"job_id": n} for n in "abcde"], "d", 2)]
    ['c', 'd']
    """
    place = next((n for n, job in enumerate(jobs) if job["job_id"] == job_id), 0)
    first = max(0, place - room + 1)
    return jobs[first : first + room]


def shared_lines(free: int, jobs: int, ranks: int) -> tuple[int, int]:
    """How many lines jobs and ranks get of those that are free.

    Where there are too few for all, ranks get half, and what one side leaves the other takes. Each
    gets one at least; a side that is cut spends a line of its own on saying so.

    Args:
        free: Lines for rows of both tables.
        jobs: How many there are.
        ranks: How many there are of the job that is shown.

    Returns:
        Lines for jobs and for ranks.

    >>> shared_lines(40, 11, 8), shared_lines(12, 11, 4), shared_lines(12, 30, 1000)
    ((11, 8), (8, 4), (6, 6))
    """
    for_ranks = min(ranks, max(free // 2, free - jobs, 1))
    return min(jobs, max(free - for_ranks, 1)), for_ranks
