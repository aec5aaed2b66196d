"""The scheduler and the job that a command line names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

    from distrain.jobs import JobStatus


@contextmanager
def connected(scheduler: str) -> "Iterator[Client]":
    """Yield a client of the scheduler that the options name."""
    from distrain.cluster import connect

    with connect(scheduler) as client:
        yield client


def job_named(client: "Client", word: str) -> "JobStatus":
    """The job whose id is `word`, or begins with it as no other does."""
    from distrain.jobs import find_job
    from distrain.submission import list_jobs

    return find_job(list_jobs(client), word)
