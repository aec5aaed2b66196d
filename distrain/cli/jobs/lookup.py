"""The scheduler and the job that a command line names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from distrain.cli.options import SCHEDULER_VARIABLE, connection_options

if TYPE_CHECKING:
    from distributed import Client

    from distrain.jobs import Listing

cluster_options = connection_options("The Dask scheduler that has the job.")


@contextmanager
def connected(scheduler: str | None) -> "Iterator[Client]":
    """Yield a client of the scheduler that the options name."""
    from distrain.cluster import connect

    if scheduler is None:
        raise click.UsageError(f"Name a scheduler: --scheduler ADDRESS, or {SCHEDULER_VARIABLE}.")
    with connect(scheduler) as client:
        yield client


def job_named(client: "Client", word: str) -> "Listing":
    """The job whose id is `word`, or begins with it as no other does."""
    from distrain.jobs import find_job
    from distrain.submission import list_jobs

    return find_job(list_jobs(client), word)
