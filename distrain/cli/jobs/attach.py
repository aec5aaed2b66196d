"""`distrain attach`: follow a job that runs without the command that submitted it."""

from pathlib import Path

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.lookup import cluster_options, connected, job_named
from distrain.cli.options import PATH, json_option


@click.command("attach")
@click.argument("job")
@cluster_options
@click.option(
    "--run-dir",
    type=PATH,
    help="The job's run directory on this machine. Default: as the submitter named it.",
)
@json_option("Print the run's summary as JSON at its end.")
def command(job: str, scheduler: str | None, run_dir: Path | None, as_json: bool) -> None:
    """Follow JOB to its end as `distrain train` does, and keep its run directory up to date.

    JOB is a job's id, or its beginning. Ctrl-C ends this command and leaves the job alone;
    `distrain cancel` stops it. What happened while nobody followed the job is written now, and of a
    job that has ended, its summary and curves. Several may follow a job: one of them writes.

    The exit code is that of the job's end, as of `distrain train`.

    \b
    Examples:
      distrain train job.yaml --detach --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain attach dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain attach dlrm --run-dir /mnt/shared/runs/today
    """
    from distrain.cli.outcome import how_to_follow, print_outcome
    from distrain.cli.output import progress_console
    from distrain.cli.progress_bars import JobProgress
    from distrain.running import attach

    with connected(scheduler) as client:
        assert scheduler is not None
        found = job_named(client, job)
        follow = how_to_follow(found.job_id, scheduler)
        if_interrupted(f"job {found.job_id} goes on without this command; {follow}")
        root = run_dir or Path(found.run_dir)
        progress = JobProgress(progress_console())
        print_outcome(root, lambda on_summary: attach(client, found, root, progress, on_summary))
