"""`distrain clone`: submit a job's spec again, as a new job."""

import click

from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import json_option, overrides_option


@click.command("clone")
@click.argument("job")
@overrides_option
@click.option("--wait", "waits", is_flag=True, help="Return at the job's end, with its exit code.")
@job_options
@json_option("Print the new job as JSON.")
def command(job: str, overrides: tuple[str, ...], waits: bool, place: Place, as_json: bool) -> None:
    """Submit a new job with the spec of JOB, and with what --set changes.

    JOB is a job's id, or its beginning. The new job begins at step 0, in a run directory of its
    own. With --scheduler that lies beside JOB's, which must be on this machine. If this command is
    interrupted before a service has answered, the same command finds the clone that was made.

    \b
    Examples:
      distrain clone dlrm-20260301-123000-ab12 --set train.optimizer.lr=0.02
      distrain clone dlrm --wait
    """
    with place.jobs() as jobs:
        jobs.clone(job, overrides, waits=waits)
