"""`distrain priority`: change the place of a job in the queue."""

import click

from distrain.cli.jobs.place import chosen, job_options, service_at
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result


@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("priority", type=int)
@job_options
@json_option("Print the job as JSON.")
def command(
    job: str, priority: int, scheduler: str | None, server: str | None, as_json: bool
) -> None:
    """Set the PRIORITY of JOB, which waits at a service: the highest goes first.

    JOB is a job's id, or its beginning. A job that runs keeps what it has. A bare scheduler takes a
    job's priority at its submission alone.

    \b
    Examples:
      distrain priority dlrm-20260301-123000-ab12 10
      distrain priority dlrm 0
    """
    place = chosen(scheduler, server)
    if place.server is None:
        raise click.UsageError(
            "A bare scheduler takes a job's priority at its submission: cancel the job and submit "
            "it with --priority, or use a service (--server)."
        )
    from distrain.cli.jobs.served import job_json

    with service_at(place.server) as service:
        changed = service.set_priority(service.find(job).id, priority)
    if as_json:
        print_answer(job=job_json(changed))
    print_result(f"job {changed.id}: priority {changed.priority}")
