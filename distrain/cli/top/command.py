"""`distrain top`: shows a scheduler's jobs and ranks on the terminal."""

import time
from typing import TYPE_CHECKING

import click

from distrain.cli.options import connection_options, json_option
from distrain.cli.output import json_wanted, print_answer, print_result, result_console
from distrain.errors import Terminated

if TYPE_CHECKING:
    from distrain.cli.top.fetch_jobs import Dashboard


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
@click.option("--once", is_flag=True, help="Print the current state as plain lines, and end.")
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
    """Show all jobs of a scheduler and the ranks of one, updated as they run; Ctrl-C quits.

    A rank's step time is that of its own work, without waiting for others. If standard output is
    not a terminal, a line is printed for each job whenever something has changed.

    Works with any scheduler that `distrain train` has started or used, or that was started with
    `--preload distrain.preload`. If it requires a token, set DISTRAIN_DASHBOARD_TOKEN.

    \b
    Examples:
      distrain top --scheduler tcp://10.0.0.5:8786
      distrain top --dashboard http://10.0.0.5:8787 --job dlrm-20260301-123000-ab12
      distrain top --once
    """
    from distrain.cli.top.fetch_jobs import dashboard_of
    from distrain.cli.top.live import show

    console = result_console()
    try:
        with dashboard_of(scheduler, url) as dashboard:
            if json_wanted():
                _print_json(dashboard, job_id)
            elif once:
                _print_once(dashboard, job_id)
            elif console.is_terminal:
                show(console, dashboard, job_id, interval_s)
            else:
                _print_changes(dashboard, job_id, interval_s)
    except Terminated:
        raise
    except KeyboardInterrupt:
        pass  # the usual end


def _print_json(dashboard: "Dashboard", job_id: str | None) -> None:
    from distrain.cli.top.live import chosen

    jobs = dashboard.jobs()
    shown = chosen(jobs, job_id)
    print_answer(jobs=jobs, job=None if shown is None else dashboard.job(shown))


def _print_once(dashboard: "Dashboard", job_id: str | None) -> None:
    from distrain.cli.top.live import chosen
    from distrain.cli.top.tables import job_line, rank_line

    jobs = dashboard.jobs()
    for job in jobs:
        print_result(job_line(job))
    shown = chosen(jobs, job_id)
    if shown is None:
        print_result("no jobs yet")
        return
    document = dashboard.job(shown)
    for rank in document["ranks"]:
        print_result(f"{shown}  {rank_line(rank)}")


def _print_changes(dashboard: "Dashboard", job_id: str | None, interval_s: float) -> None:
    from distrain.cli.top.tables import job_line

    printed: dict[str, str] = {}
    while True:
        for job in dashboard.jobs():
            line = job_line(job)
            if job_id in (None, job["id"]) and printed.get(job["id"]) != line:
                printed[job["id"]] = line
                print_result(line)
        time.sleep(interval_s)
