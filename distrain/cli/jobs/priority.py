"""`distrain priority`: change the place of a job in the queue."""

import click

from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import json_option


@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("priority", type=int)
@job_options
@json_option("Print the job as JSON.")
def command(job: str, priority: int, place: Place, as_json: bool) -> None:
    """Set the PRIORITY of JOB, which waits at a service: the highest goes first.

    JOB is a job's id, or its beginning. A job that runs keeps what it has. A bare scheduler takes a
    job's priority at its submission alone.

    \b
    Examples:
      distrain priority dlrm-20260301-123000-ab12 10
      distrain priority dlrm 0
    """
    if not place.is_service:
        raise click.UsageError(
            "A bare scheduler takes a job's priority at its submission: cancel the job and submit "
            "it with --priority, or use a service (--server)."
        )
    with place.jobs() as jobs:
        jobs.set_priority(job, priority)
