"""`distrain cancel`, `resume`, `clone` and `priority`: change or repeat a job."""

import socket

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import JobServer, id_option, job_options, wait_option
from distrain.cli.options import json_option, overrides_option
from distrain.cli.output import print_answer, print_remark, print_result
from distrain.errors import JobCancelled


@click.command("cancel")
@click.argument("job")
@job_options
@wait_option
@json_option("Print the result as JSON.")
def cancel(job: str, server: JobServer, waits: bool) -> None:
    """Stop JOB: its ranks save a checkpoint within 3 seconds, and end.

    If deadlines.stop_grace_s in the job's spec is less than 3 seconds, it applies instead.

    JOB is a job's id, or its beginning or end. A job that has ended is not changed. `distrain
    resume JOB` continues a stopped job.

    With --wait the exit code is 0 if the job was stopped, or had succeeded before, and 100 if it
    failed. Without it, 0 means that the scheduler or the service received the request.

    \b
    Examples:
      distrain cancel dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain cancel dlrm --wait
      distrain cancel dlrm --server https://jobs.example
    """
    why = f"`distrain cancel` on host {socket.gethostname()}"
    with server.jobs() as jobs:
        target = jobs.find(job)
        job_id = target.job_id
        if_interrupted(f"job {job_id} may not be stopped yet; {jobs.how_to_follow(job_id)}")
        facts = jobs.cancel(target, why)
        if_interrupted(f"job {job_id} is still being stopped")
        if waits:
            try:
                jobs.print_cancelled(target, jobs.wait(target))
            except JobCancelled as stopped:  # as requested
                if stopped.hint:
                    print_remark(stopped.hint)
            return
    print_answer(job_id=job_id, asked=not target.is_final, **facts)
    ended = f" has ended already: {target.state}"
    print_result(f"job {job_id}{ended if target.is_final else ': asked to stop'}")


@click.command("resume")
@click.argument("job")
@overrides_option
@wait_option
@job_options
@json_option("Print the job as JSON.")
def resume(job: str, overrides: tuple[str, ...], waits: bool, server: JobServer) -> None:
    """Resume JOB, which failed or was cancelled, from its last checkpoint.

    JOB is a job's id, or its beginning or end. It keeps its id and its run folder. --set changes
    fields of its spec that do not change the training; to extend a job that has succeeded, set
    train.epochs or train.max_steps. With --scheduler the run folder must be on this machine.

    \b
    Examples:
      distrain resume dlrm-20260301-123000-ab12
      distrain resume dlrm --set resources.num_ranks=2 --wait
    """
    with server.jobs() as jobs:
        jobs.resume(job, overrides, waits=waits)


@click.command("clone")
@click.argument("job")
@overrides_option
@id_option
@wait_option
@job_options
@json_option("Print the new job as JSON.")
def clone(
    job: str,
    overrides: tuple[str, ...],
    job_id: str | None,
    waits: bool,
    server: JobServer,
) -> None:
    """Submit a new job with the spec of JOB, changed by --set.

    JOB is a job's id, or its beginning or end. The new job starts at step 0, in its own run folder.
    A service's job stays in JOB's project and cluster. With --scheduler the new run folder is
    beside that of JOB, which must be on this machine.

    \b
    Examples:
      distrain clone dlrm-20260301-123000-ab12 --set train.optimizer.lr=0.02
      distrain clone dlrm --wait
    """
    with server.jobs() as jobs:
        jobs.clone(job, overrides, waits=waits, job_id=job_id)


@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("priority", type=int)
@job_options
@json_option("Print the job as JSON.")
def priority(job: str, priority: int, server: JobServer) -> None:
    """Set the PRIORITY of JOB, which is waiting; the highest priority starts first.

    JOB is a job's id, or its beginning or end. If it has started or ended, the command ends with
    an error.

    \b
    Examples:
      distrain priority dlrm-20260301-123000-ab12 10
      distrain priority dlrm 0
    """
    from distrain.cli.jobs.api_jobs import job_json

    with server.jobs() as jobs:
        found = jobs.client.set_priority(jobs.find(job).id, priority)
    print_answer(job=job_json(found))
    print_result(f"job {found.id}: priority {found.priority}")
