"""A scheduler that is asked about its jobs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distrain.cli.params import SCHEDULER_VARIABLE, scheduler_options
from distrain.cli.tls import tls_options

if TYPE_CHECKING:
    from distributed import Client

    from distrain.coordinator.listing import Listing

Function = TypeVar("Function", bound=Callable[..., Any])


def cluster_options(function: Function) -> Function:
    """Add the options that say how to reach the scheduler."""
    return scheduler_options("The Dask scheduler that has the job.")(tls_options(function))


@contextmanager
def asked(scheduler: str | None) -> "Iterator[Client]":
    """Yield a client of the scheduler that the options name.

    Raises:
        ClusterError: It does not answer.
    """
    from distrain.cluster import connect

    if scheduler is None:
        raise click.UsageError(f"Name a scheduler: --scheduler ADDRESS, or {SCHEDULER_VARIABLE}.")
    with connect(scheduler) as client:
        yield client


def meant(client: "Client", word: str) -> "Listing":
    """The job that somebody means.

    Raises:
        InputError: There is none such, or there are several.
    """
    from distrain.coordinator.handle import list_jobs
    from distrain.coordinator.listing import find_job

    return find_job(list_jobs(client), word)
