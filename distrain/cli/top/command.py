"""`distrain top`: shows jobs, and the ranks of one of them, on the terminal."""

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import click

from distrain.cli.jobs.choose_server import READ_S, JobServer, job_server_options
from distrain.cli.options import json_option
from distrain.cli.output import clean_line, json_wanted, print_answer, result_console
from distrain.errors import DistrainError, Terminated

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.client.client import Client
    from distrain.jobs.api_answers import Job

    Read = tuple[list[Job], Job | None]

_MOST_RANKS = 64
_MOST_JOBS = 200


@click.command()
@job_server_options("The Dask scheduler.")
@click.option(
    "--job", "job_id", metavar="ID", help="Show this job's ranks. Default: the newest job."
)
@click.option("--once", is_flag=True, help="Print the current state, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    metavar="SECONDS",
    help="The update interval.",
)
@json_option("Print the current state as JSON, and end: `jobs`, and the shown `job`.")
def command(server: JobServer, job_id: str | None, once: bool, interval_s: float) -> None:
    """Show the newest 200 jobs and the ranks of one job, updated as they run; Ctrl-C quits.

    A rank's step time does not include waiting for other ranks. If there are many ranks, the
    slowest are shown. A service does not show ranks: ask the scheduler, with --scheduler. If
    standard output is not a terminal, or with --once, the command prints the current state and
    ends.

    Works with any scheduler that `distrain train` has started or used, or that was started with
    `--preload distrain.preload`.

    \b
    Examples:
      distrain top --scheduler tcp://10.0.0.5:8786
      distrain top --scheduler tcp://10.0.0.5:8786 --job dlrm-20260301-123000-ab12
      distrain top --once
    """
    from distrain.cli.top.tables import screen

    console = result_console()
    with server.jobs(READ_S) as found:
        client: Client = found.client
        if console.is_terminal and not (once or json_wanted()):
            try:
                _show(console, lambda: read_jobs(client, job_id), server.address, interval_s)
            except Terminated:
                raise
            except KeyboardInterrupt:
                return  # the usual end
        jobs, job = read_jobs(client, job_id)
    documents = [dict(one.document) for one in jobs]
    print_answer(jobs=documents, job=None if job is None else dict(job.document))
    console.print(screen(jobs, job, _MOST_RANKS, server.address))


def read_jobs(client: "Client", job_id: str | None) -> "Read":
    """Return the newest jobs, the newest first, and one job with its ranks.

    The one job is that which `Client.find` returns for `job_id`. If `job_id` is `None`, it is the
    newest job that has not ended, or if all have ended, the newest; `None` if there are no jobs.
    """
    jobs = list(islice(client.jobs(page_jobs=_MOST_JOBS), _MOST_JOBS))
    if job_id is not None:
        return jobs, client.find(job_id)
    newest = next((job for job in jobs if not job.is_final), jobs[0] if jobs else None)
    return jobs, None if newest is None else client.job(newest.id)


def _show(
    console: "Console", read: "Callable[[], Read]", address: str, interval_s: float
) -> NoReturn:
    """Draw the jobs until Ctrl-C. After the first read, errors are shown and reading is retried."""
    from rich.live import Live

    from distrain.cli.top.tables import screen

    shown, note = read(), address  # a wrong address is an error at the start
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            head = f"{time.strftime('%H:%M:%S')}  {note}"
            live.update(screen(*shown, console.size.height // 3, head), refresh=True)
            time.sleep(interval_s)
            try:
                shown, note = read(), address
            except DistrainError as error:  # the scheduler may come back
                note = f"{clean_line(error.message)}; retrying"
