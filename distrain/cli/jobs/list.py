"""`distrain jobs`: a table of a scheduler's jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from distrain.cli.jobs.lookup import cluster_options, connected
from distrain.cli.options import json_option
from distrain.cli.output import (
    STATE_STYLES,
    clean_line,
    print_answer,
    print_result,
    result_console,
)
from distrain.wording import count, duration

if TYPE_CHECKING:
    from rich.table import Table

    from distrain.jobs import Listing

# As `JobState` has them, which this file does not import: help must not load what it needs.
STATES = (
    "pending", "starting", "running", "stopping", "restarting", "succeeded", "failed", "cancelled",
)  # fmt: skip
HEADINGS = ("JOB", "NAME", "STATE", "RANKS", "STEP", "ROWS/S", "AGE", "WHY")


@click.command("jobs")
@cluster_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only jobs in this state; may be repeated.",
)
@json_option("Print the jobs as JSON.")
def command(scheduler: str | None, states: tuple[str, ...], as_json: bool) -> None:
    """List the jobs of a scheduler, the newest first: also those that ended not long ago.

    The column WHY holds why a job does not run yet, or why it ended badly. `distrain top` shows
    more, and needs the scheduler's dashboard; this command needs the scheduler alone.

    \b
    Examples:
      distrain jobs --scheduler tcp://10.0.0.5:8786
      distrain jobs --state pending --state running
      distrain jobs --json
    """
    from distrain.submission import list_jobs

    with connected(scheduler) as client:
        found = list_jobs(client)
    jobs = [job for job in found if not states or job.state in states]
    if as_json:
        print_answer(scheduler=scheduler, jobs=[job.to_json() for job in jobs])
    elif jobs:
        result_console().print(jobs_table(jobs))
    else:
        print_result("no such jobs" if found else "no jobs")


def _cells(job: "Listing") -> tuple[str, ...]:
    """A job's row under `HEADINGS`."""
    return (
        clean_line(job.job_id),
        clean_line(job.name),
        job.state,
        str(job.num_ranks),
        f"{job.step}/{job.num_steps or '?'}",
        count(job.rows_per_s),
        duration(job.age_s, 0),
        clean_line(job.why_pending or job.reason or ""),
    )


def jobs_table(jobs: "Sequence[Listing]") -> "Table":
    """A table of jobs, a row each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold dim")
    for heading in HEADINGS:
        number = heading in ("RANKS", "STEP", "ROWS/S", "AGE")
        # An id is what other commands take: it is never cut.
        whole = heading == "JOB"
        table.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=not whole,
            overflow="fold" if whole else "ellipsis",
        )
    for job in jobs:
        row = _cells(job)
        style = STATE_STYLES.get(job.state, "")
        table.add_row(*(Text(cell, style if n == 2 else "") for n, cell in enumerate(row)))
    return table
