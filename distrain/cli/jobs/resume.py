"""`distrain resume`: let a job that has ended go on."""

import click

from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import json_option, overrides_option


@click.command("resume")
@click.argument("job")
@overrides_option
@click.option("--wait", "waits", is_flag=True, help="Return at the job's end, with its exit code.")
@job_options
@json_option("Print the job as JSON.")
def command(job: str, overrides: tuple[str, ...], waits: bool, place: Place, as_json: bool) -> None:
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
    with place.jobs() as jobs:
        jobs.resume(job, overrides, waits=waits)
