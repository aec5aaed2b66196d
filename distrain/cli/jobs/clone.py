"""`distrain clone`: submit a job's spec again, as a new job."""

import click

from distrain.cli.jobs.lookup import connected, job_named
from distrain.cli.jobs.place import chosen, job_options, service_at
from distrain.cli.options import json_option, overrides_option


@click.command("clone")
@click.argument("job")
@overrides_option
@click.option("--wait", "waits", is_flag=True, help="Return at the job's end, with its exit code.")
@job_options
@json_option("Print the new job as JSON.")
def command(
    job: str,
    overrides: tuple[str, ...],
    waits: bool,
    scheduler: str | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Submit a new job with the spec of JOB, and with what --set changes.

    JOB is a job's id, or its beginning. The new job begins at step 0, in a run directory of its
    own. With --scheduler that lies beside JOB's, which must be on this machine. If this command is
    interrupted before a service has answered, the same command finds the clone that was made.

    \b
    Examples:
      distrain clone dlrm-20260301-123000-ab12 --set train.optimizer.lr=0.02
      distrain clone dlrm --wait
    """
    place = chosen(scheduler, server)
    if place.server is None:
        assert place.scheduler is not None
        from distrain.cli.jobs.detached import clone_detached

        with connected(place.scheduler) as client:
            found = job_named(client, job)
        clone_detached(found, place.scheduler, overrides, waits=waits)
        return
    from distrain.cli.jobs.served import parse_overrides
    from distrain.cli.jobs.submit import finish, kept

    values = parse_overrides(overrides)
    with service_at(place.server) as service:
        original = service.find(job)
        same = {"clone": original.id, "set": values}
        made = kept(service, same, lambda key: service.clone(original.id, values, key=key))
        what = f"is submitted, a clone of {original.id}"
        finish(service, made, waits=waits, follows=False, as_json=as_json, what=what)
