"""`distrain attach`: follow a job that runs without the command that submitted it."""

from pathlib import Path

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import PATH, json_option


@click.command("attach")
@click.argument("job")
@job_options
@click.option(
    "--run-dir",
    type=PATH,
    help="With --scheduler: the run directory on this machine. Default: as the submitter named it.",
)
@json_option("Print the run's summary as JSON at its end; of a service, the job.")
def command(job: str, place: Place, run_dir: Path | None, as_json: bool) -> None:
    """Follow JOB to its end; with a scheduler as `distrain train` does, run directory included.

    JOB is a job's id, or its beginning. Ctrl-C ends this command and leaves the job alone;
    `distrain cancel` stops it. What happened while nobody followed the job is written now, and of a
    job that has ended, its summary and curves. Several may follow a job: one of them writes.

    The exit code is that of the job's end, as of `distrain train`.

    \b
    Examples:
      distrain train job.yaml --detach --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain attach dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain attach dlrm --run-dir /mnt/shared/runs/today
      distrain attach dlrm --server https://jobs.example
    """
    if place.is_service and run_dir is not None:
        raise click.UsageError("--run-dir is for --scheduler: a service keeps it up to date.")
    with place.jobs() as jobs:
        target = jobs.find(job)
        follow = jobs.how_to_follow(target.job_id)
        if_interrupted(f"job {target.job_id} goes on without this command; {follow}")
        jobs.follow(target, run_dir)
