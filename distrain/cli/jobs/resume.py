"""`distrain resume`: let a job that has ended go on."""

import click

from distrain.cli.jobs.lookup import connected, job_named
from distrain.cli.jobs.place import chosen, job_options, service_at
from distrain.cli.options import json_option, overrides_option


@click.command("resume")
@click.argument("job")
@overrides_option
@click.option("--wait", "waits", is_flag=True, help="Return at the job's end, with its exit code.")
@job_options
@json_option("Print the job as JSON.")
def command(
    job: str,
    overrides: tuple[str, ...],
    waits: bool,
    scheduler: str | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Let JOB, which failed or was cancelled, go on from its last checkpoint.

    JOB is a job's id, or its beginning. It keeps its id and its run directory. --set changes its
    spec, as far as the same training follows from it; a job that has succeeded needs
    train.epochs or train.max_steps. With --scheduler the run directory must be on this machine. If
    this command is interrupted before a service has answered, the same one resumes the job once.

    \b
    Examples:
      distrain resume dlrm-20260301-123000-ab12
      distrain resume dlrm --set resources.num_ranks=2 --wait
    """
    place = chosen(scheduler, server)
    if place.server is None:
        assert place.scheduler is not None
        from distrain.cli.jobs.detached import resume_detached

        with connected(place.scheduler) as client:
            found = job_named(client, job)
        resume_detached(found, place.scheduler, overrides, waits=waits)
        return
    from distrain.cli.jobs.served import parse_overrides
    from distrain.cli.jobs.submit import finish, kept

    values = parse_overrides(overrides)
    with service_at(place.server) as service:
        ended = service.find(job)
        same = {"resume": ended.id, "set": values}
        resumed = kept(service, same, lambda key: service.resume(ended.id, values, key=key))
        what = "was resumed already" if resumed.replayed else "is to be resumed"
        finish(service, resumed, waits=waits, follows=False, as_json=as_json, what=what)
