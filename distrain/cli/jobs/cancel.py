"""`distrain cancel`: stop a job."""

import socket

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.place import Place, job_options
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result


@click.command("cancel")
@click.argument("job")
@job_options
@click.option("--wait", is_flag=True, help="Return at the job's end, with its exit code.")
@json_option("Print what was done as JSON.")
def command(job: str, place: Place, wait: bool, as_json: bool) -> None:
    """Stop JOB: its ranks save a checkpoint, within deadlines.stop_grace_s, and end.

    JOB is a job's id, or its beginning. A job that has ended stays as it is. `distrain train
    --resume RUN` goes on with one that was stopped.

    With --wait the exit code is the job's, as `distrain train` gives it: 103 where it was stopped,
    0 where it had succeeded before. Without it, 0 says that the scheduler knows.

    \b
    Examples:
      distrain cancel dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain cancel dlrm --wait
      distrain cancel dlrm --server https://jobs.example
    """
    why = f"somebody ran `distrain cancel` on host {socket.gethostname()}"
    with place.jobs() as jobs:
        target = jobs.find(job)
        job_id = target.job_id
        if_interrupted(f"see whether job {job_id} is being stopped: distrain status {job_id}")
        facts = jobs.cancel(target, why)
        if_interrupted(f"job {job_id} is being stopped all the same")
        if wait:
            jobs.print_cancelled(target, jobs.wait(target))
            return
    if as_json:
        print_answer(job_id=job_id, asked=not target.is_final, **facts)
    ended = f" has ended already: {target.state}"
    print_result(f"job {job_id}{ended if target.is_final else ': asked to stop'}")
