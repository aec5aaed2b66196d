"""`distrain jobs`: prints a table of the jobs of a service or a scheduler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.jobs.choose_server import READ_S, JobServer, job_server_options
from distrain.cli.options import POSITIVE, json_option
from distrain.cli.output import (
    STATE_STYLES,
    clean_line,
    json_wanted,
    print_answer,
    print_remark,
    print_result,
    result_console,
    table_of,
)
from distrain.formatting import aucs, duration
from distrain.jobs.figures import shown_on

if TYPE_CHECKING:
    from rich.table import Table

    from distrain.jobs.api_answers import Job

TABLE_STYLE: dict[str, Any] = {
    "box": None,
    "padding": (0, 2, 0, 0),
    "pad_edge": False,
    "header_style": "bold dim",
}
"""Options for rich of the tables that list jobs and ranks."""


@click.command("jobs")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only jobs in this state; may be repeated.",
)
@click.option("--project", help="Only jobs of this project of a service.")
@click.option("--owner", help="Only jobs of this user of a service.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs of a service with this tag; may be repeated.",
)
@click.option(
    "--limit",
    type=POSITIVE,
    default=100,
    help="The maximum number of jobs, the newest.",
)
@job_server_options("The Dask scheduler whose jobs to list.")
@json_option("Print the jobs as JSON.")
def command(
    states: tuple[str, ...],
    project: str | None,
    owner: str | None,
    tags: tuple[str, ...],
    limit: int,
    server: JobServer,
) -> None:
    """List the jobs of a service or of a scheduler, newest first.

    A scheduler also lists jobs that ended recently. The column WHY shows why a job does not run
    yet, or why it failed. `distrain top` shows more about a scheduler's jobs.

    \b
    Examples:
      distrain jobs
      distrain jobs --state pending --state running
      distrain jobs --server https://jobs.example --project ads --tag team=clicks
      distrain jobs --scheduler tcp://10.0.0.5:8786 --json
    """
    filters = {"project": project, "owner": owner, "tags": tags}
    with server.jobs(READ_S) as listing:
        jobs, documents, is_filtered = listing.list_jobs(states, limit, filters)
    if json_wanted():
        where = "server" if server.is_service else "scheduler"
        print_answer(**{where: server.address}, jobs=documents)
    elif jobs:
        result_console().print(jobs_table(jobs))
        if len(jobs) == limit:
            print_remark(f"the newest {limit}; --limit shows more")
    else:
        print_result("no such jobs" if is_filtered else "no jobs")


def _cells(job: "Job") -> tuple[str, ...]:
    """Return a job's cells in the order of the table's columns."""
    return (
        clean_line(job.job_id),
        clean_line(job.name),
        job.state,
        str(job.num_ranks),
        f"{job.step or 0}/{job.num_steps or '?'}",
        *(figure.of(job.figures) for figure in shown_on("jobs")),
        aucs(job.valid_auc, job.auc, job.valid_targets, job.targets),
        duration(job.age_s, 0),
        clean_line(job.why),
    )


def jobs_table(jobs: "Sequence[Job]") -> "Table":
    """Return jobs as a table to print, one row for each, in their order."""
    from rich.text import Text

    figures = (figure.title.upper() for figure in shown_on("jobs"))
    numbers = ("RANKS", "STEP", *figures, "AGE")
    whole = ("JOB", "WHY")  # ids, which other commands take, and reasons are never truncated
    columns = {
        heading: {
            "justify": "right" if heading in numbers else "left",
            "no_wrap": heading not in whole,
            "overflow": "fold" if heading in whole else "ellipsis",
        }
        for heading in ("JOB", "NAME", "STATE", *numbers[:-1], "VALID/TRAIN", "AGE", "WHY")
    }
    rows = (
        (*cells[:2], Text(job.state, STATE_STYLES.get(job.state, "")), *cells[3:])
        for job, cells in zip(jobs, map(_cells, jobs), strict=True)
    )
    return table_of(columns.items(), rows, **TABLE_STYLE)
