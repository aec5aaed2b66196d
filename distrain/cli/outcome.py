"""Prints how to follow a job, and the summary of a job that has ended."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distrain.cli.options import SCHEDULER_VARIABLE
from distrain.cli.output import json_wanted, print_answer, print_remark, result_console, table_of
from distrain.errors import JobError
from distrain.formatting import UNKNOWN, command_line
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.target_names import own_name, with_own_name
from distrain.runs.report.outcome import outcome_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from distrain.runs.summary import Summary


def how_to_follow(job_id: str, scheduler: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the commands that follow and stop a job of a scheduler, as a text for people."""
    at = "" if environment.get(SCHEDULER_VARIABLE) == scheduler else f" --scheduler {scheduler}"
    return commands_for(job_id, at)


def commands_for(job_id: str, at: str) -> str:
    """Return the commands that follow and stop a job, as a text for people.

    `at` is their option that names the scheduler or the service, after a space; "" for none.
    """
    return f"follow it: distrain attach {job_id}{at}; stop it: distrain cancel {job_id}{at}"


def print_outcome(run_dir: "Path", wait: "Callable[[Callable[[Summary], None]], Summary]") -> None:
    """Wait for a run's end and print its summary; of a failed run, only with `--json`.

    `wait` waits for the run's end, calls its argument with the summary, and then returns the
    summary or raises the job's error. That error is raised here, too.
    """
    summaries: list[Summary] = []
    try:
        summary = wait(summaries.append)
    except JobError:
        if json_wanted() and summaries:
            print_answer(run_dir=str(run_dir), **summaries[-1].to_json())
        raise
    if json_wanted():
        print_answer(run_dir=str(run_dir), **summary.to_json())
    else:
        print_summary(result_console(), summary, RunPaths(run_dir))
        print_remark(f"next: {command_line('report', run_dir)}")


def print_summary(console: "Console", summary: "Summary", paths: "RunPaths") -> None:
    """Print a table of a run's figures and of the paths of its files."""
    files = {
        "saved model": paths.model if summary.model else UNKNOWN,
        "curves": paths.curves,
        "records": paths.records,
        "summary": paths.summary,
    }
    if paths.logs.is_dir():  # a rank in the command's own process has no log
        files["logs"] = paths.logs
    title = f"{summary.job_id}: {summary.state}"
    columns = [("figure", {"style": "bold"}), ("value", {})]
    outcome = summary.to_json()
    outcome["targets"] = with_own_name(outcome.get("targets"), own_name(paths.model))
    rows = [*outcome_rows(outcome), *files.items()]
    table = table_of(columns, rows, title=title, show_header=False, title_justify="left")
    console.print(table, highlight=False)
