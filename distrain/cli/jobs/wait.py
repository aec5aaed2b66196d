"""`distrain wait`: wait for a job's end."""

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import json_option


@click.command("wait")
@click.argument("job")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds at most.")
@job_options
@json_option("Print the job as JSON at its end.")
def command(job: str, timeout_s: float | None, place: Place, as_json: bool) -> None:
    """Wait for the end of JOB, also across restarts of the service.

    JOB is a job's id, or its beginning. The exit code is 0 if the job succeeded, 100 if it failed,
    103 if it was cancelled, 104 if it has not ended within --timeout, and of a service 102 if there
    is no such job. Ctrl-C leaves the job alone.

    \b
    Examples:
      distrain wait dlrm-20260301-123000-ab12
      distrain wait dlrm --timeout 3600 || echo "exit code $?"
    """
    with place.jobs() as jobs:
        target = jobs.find(job)
        follow = jobs.how_to_follow(target.job_id)
        if_interrupted(f"job {target.job_id} goes on without this command; {follow}")
        jobs.print_end(target, jobs.wait(target, timeout_s))
