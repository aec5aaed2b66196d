"""`distrain jobs`: prints a table of the jobs of a service or a scheduler."""

from collections.abc import Iterator, Sequence
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
from distrain.formatting import aucs, duration, steps
from distrain.jobs.figures import shown_on
from distrain.jobs.run_paths import id_end

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
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
    yet, or why it failed; on a narrow terminal, it is the line below the job, and the column ID
    shows the end of the job's id. `distrain top` shows more about a scheduler's jobs.

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
        result_console().print(JobsTable(jobs))
        if len(jobs) == limit:
            print_remark(f"the newest {limit}; --limit shows more")
    else:
        print_result("no such jobs" if is_filtered else "no jobs")


_WIDE = 130  # columns of a terminal that fit the table with whole ids and reasons
_NARROW = ("NAME", "ID", "STATE", "STEP", "VALID/TRAIN", "AGE")


class JobsTable:
    """Jobs as a table to print, one row for each, in their order.

    On a terminal with fewer than `_WIDE` columns, the table has only the ends of the ids, which
    commands accept, and each reason is on a line below its row.
    """

    def __init__(self, jobs: "Sequence[Job]"):
        self._rows = [_cells(job) for job in jobs]

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        from rich.padding import Padding
        from rich.segment import Segment, Segments
        from rich.text import Text

        if options.max_width >= _WIDE:
            yield self._table([name for name in self._rows[0] if name != "ID"])
            return
        # A cell is never wrapped here, so that each job has one line.
        head, *lines = console.render_lines(self._table(_NARROW, expand=True), options)
        yield Segments([*head, Segment.line()])
        for row, line in zip(self._rows, lines, strict=True):
            yield Segments([*line, Segment.line()])
            if row["WHY"]:
                yield Padding(Text(row["WHY"], "dim"), (0, 0, 0, 4))

    def _table(self, headings: "Sequence[str]", **style: Any) -> "Table":
        from rich.text import Text

        columns = {
            heading: {
                "justify": "right" if heading in _NUMBERS else "left",
                "no_wrap": heading not in _WHOLE,
                "overflow": "fold" if heading in _WHOLE else "ellipsis",
                # the ends of ids are never truncated
                "min_width": max(len(r["ID"]) for r in self._rows) if heading == "ID" else None,
                "ratio": 1 if style and heading == "NAME" else None,  # the rest of the line
            }
            for heading in headings
        }
        rows = (
            [
                Text(row[name], STATE_STYLES.get(row[name], "")) if name == "STATE" else row[name]
                for name in headings
            ]
            for row in self._rows
        )
        return table_of(columns.items(), rows, **TABLE_STYLE, **style)


_NUMBERS = ("RANKS", "STEP", *(figure.title.upper() for figure in shown_on("jobs")), "AGE")
_WHOLE = ("JOB", "WHY")  # ids, which other commands take, and reasons are never truncated


def _cells(job: "Job") -> dict[str, str]:
    """Return a job's cells by the headings of the table's columns, in their order."""
    return {
        "JOB": clean_line(job.job_id),
        "NAME": clean_line(job.name),
        "ID": clean_line(id_end(job.job_id, job.name)),
        "STATE": job.state,
        "RANKS": str(job.num_ranks),
        "STEP": steps(job.step, job.num_steps),
        **{figure.title.upper(): figure.of(job.figures) for figure in shown_on("jobs")},
        "VALID/TRAIN": aucs(job.valid_auc, job.auc, job.valid_targets, job.targets),
        "AGE": duration(job.age_s, 0),
        "WHY": clean_line(job.why),
    }
