"""`distrain top`: shows a scheduler's jobs and ranks on the terminal."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from distrain.cli.options import connection_options, json_option
from distrain.cli.output import clean_line, json_wanted, print_answer, result_console
from distrain.errors import DistrainError, Terminated

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.jobs.api_answers import Job

    Read = tuple[list[Job], Job | None]

_MOST_RANKS = 64


@click.command()
@connection_options("The Dask scheduler.", "DASK_SCHEDULER_ADDRESS")
@click.option(
    "--dashboard",
    "url",
    metavar="URL",
    help="The scheduler's dashboard, as `distrain train` prints it. Default: port 8787 here.",
)
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
def command(
    scheduler: str | None,
    url: str | None,
    job_id: str | None,
    once: bool,
    interval_s: float,
) -> None:
    """Show all jobs of a scheduler and the ranks of one job, updated as they run; Ctrl-C quits.

    A rank's step time does not include waiting for other ranks. If there are many ranks, the
    slowest are shown. If standard output is not a terminal, or with --once, the command prints the
    current state and ends.

    Works with any scheduler that `distrain train` has started or used, or that was started with
    `--preload distrain.preload`. If the scheduler requires a token, set DISTRAIN_DASHBOARD_TOKEN.

    \b
    Examples:
      distrain top --scheduler tcp://10.0.0.5:8786
      distrain top --dashboard http://10.0.0.5:8787 --job dlrm-20260301-123000-ab12
      distrain top --once
    """
    from distrain.cli.top.fetch_jobs import dashboard_of, read_jobs
    from distrain.cli.top.tables import screen

    console = result_console()
    with dashboard_of(scheduler, url) as dashboard:
        if console.is_terminal and not (once or json_wanted()):
            try:
                _show(console, lambda: read_jobs(dashboard, job_id), dashboard.address, interval_s)
            except Terminated:
                raise
            except KeyboardInterrupt:
                return  # the usual end
        jobs, job = read_jobs(dashboard, job_id)
    documents = [dict(one.document) for one in jobs]
    print_answer(jobs=documents, job=None if job is None else dict(job.document))
    console.print(screen(jobs, job, _MOST_RANKS, dashboard.address))


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
