"""`distrain status`: the state of one job."""

import click

from distrain.cli.jobs.place import READ_S, Place, job_options
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result


@click.command("status")
@click.argument("job")
@job_options
@json_option("Print the job as JSON.")
def command(job: str, place: Place, as_json: bool) -> None:
    """Show the state of JOB: its step, restarts, checkpoints, and why it waits or failed.

    JOB is a job's id, or its beginning. The exit code is 0 also for a job that failed.

    \b
    Examples:
      distrain status dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain status dlrm --json
      distrain status dlrm --server https://jobs.example
    """
    with place.jobs(READ_S) as jobs:
        document, lines = jobs.status(job)
    if as_json:
        print_answer(**document)
    for line in lines:
        print_result(line)
