"""`distrain status`, `wait` and `attach`: show one job without changing it."""

from pathlib import Path
from typing import Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import READ_S, JobServer, job_options
from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_answer, print_result


@click.command("status")
@click.argument("job")
@job_options
@json_option("Print the job as JSON.")
def status(job: str, server: JobServer) -> None:
    """Show the state of JOB: its step, restarts, checkpoints, and why it waits or failed.

    JOB is a job's id, or its beginning or end. The exit code is 0 even for a failed job.

    \b
    Examples:
      distrain status dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain status dlrm --json
      distrain status dlrm --server https://jobs.example
    """
    with server.jobs(READ_S) as jobs:
        document, lines = jobs.status(job)
    print_answer(**document)
    for line in lines:
        print_result(line)


@click.command("wait")
@click.argument("job")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    help="The maximum time to wait, in seconds. Default: no limit.",
)
@job_options
@json_option("Print the job as JSON at its end.")
def wait(job: str, timeout_s: float | None, server: JobServer) -> None:
    """Wait for the end of JOB, even if the service is restarted in the meantime.

    JOB is a job's id, or its beginning or end. The exit code is 0 if the job succeeded, 100 if it
    failed, 103 if it was cancelled, 104 if it has not ended within --timeout, 102 if there is no
    such job. Ctrl-C does not stop the job.

    \b
    Examples:
      distrain wait dlrm-20260301-123000-ab12
      distrain wait dlrm --timeout 3600 || echo "exit code $?"
    """
    with server.jobs() as jobs:
        target = _find_and_note(jobs, job)
        jobs.print_end(target, jobs.wait(target, timeout_s))


@click.command("attach")
@click.argument("job")
@job_options
@click.option(
    "--run-dir",
    type=PATH,
    help="With --scheduler: the run folder on this machine. Default: the path given at submission.",
)
@json_option("Print the run's summary as JSON at its end; of a service, the job.")
def attach(job: str, server: JobServer, run_dir: Path | None) -> None:
    """Follow JOB to its end: print its states, its progress, and how it ended.

    JOB is a job's id, or its beginning or end. Ctrl-C ends this command but not the job; `distrain
    cancel` stops it. Several commands may follow a job.

    With --scheduler and the run folder on this machine, the command finally draws curves.png in the
    run folder, and writes summary.json if no worker could write it.

    The exit code is that of the job's end, as from `distrain train`.

    \b
    Examples:
      distrain train job.yaml --detach --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain attach dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain attach dlrm --run-dir /mnt/shared/runs/today
      distrain attach dlrm --server https://jobs.example
    """
    if server.is_service and run_dir is not None:
        raise click.UsageError("--run-dir is for --scheduler: a service keeps it up to date.")
    with server.jobs() as jobs:
        jobs.follow(_find_and_note(jobs, job), run_dir)


def _find_and_note(jobs: Any, word: str) -> Any:
    """Return the job whose id is `word`, or begins or ends with it.

    After this call, Ctrl-C prints that the job continues, and how to follow it.
    """
    target = jobs.find(word)
    follow = jobs.how_to_follow(target.job_id)
    if_interrupted(f"job {target.job_id} continues without this command; {follow}")
    return target
