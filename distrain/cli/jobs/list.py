"""`distrain jobs`: the jobs of a scheduler."""

import click

from distrain.cli.jobs.asking import asked, cluster_options
from distrain.cli.output import answer, result_console, tell
from distrain.cli.params import json_option

# As `JobState` has them, which this file does not import: help must not load what it needs.
STATES = (
    "pending", "starting", "running", "stopping", "restarting", "succeeded", "failed", "cancelled",
)  # fmt: skip


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

    WHY says why a job does not run yet, or why it ended badly. `distrain top` shows more, as it
    changes, and needs the scheduler's dashboard; this needs the scheduler alone.

    \b
    Examples:
      distrain jobs --scheduler tcp://10.0.0.5:8786
      distrain jobs --state pending --state running
      distrain jobs --json
    """
    from distrain.cli.jobs.rendering import jobs_table
    from distrain.coordinator.handle import list_jobs

    with asked(scheduler) as client:
        found = list_jobs(client)
    jobs = [job for job in found if not states or job.state in states]
    if as_json:
        answer(scheduler=scheduler, jobs=[job.to_json() for job in jobs])
    elif jobs:
        result_console().print(jobs_table(jobs))
    else:
        tell("no such jobs" if found else "no jobs")
