"""`distrain cancel`: stop a job."""

from pathlib import Path

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.lookup import connected, job_named
from distrain.cli.jobs.place import chosen, job_options, service_at
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result


@click.command("cancel")
@click.argument("job")
@job_options
@click.option("--wait", is_flag=True, help="Return at the job's end, with its exit code.")
@json_option("Print what was done as JSON.")
def command(job: str, scheduler: str | None, server: str | None, wait: bool, as_json: bool) -> None:
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
    place = chosen(scheduler, server)
    if place.server is not None:
        _cancel_served(place.server, job, wait=wait, as_json=as_json)
    else:
        assert place.scheduler is not None
        _cancel_at_scheduler(place.scheduler, job, wait=wait, as_json=as_json)


def _cancel_served(server: str, job: str, *, wait: bool, as_json: bool) -> None:
    from distrain.cli.jobs.served import job_json, print_end, tell_changes

    with service_at(server) as service:
        found = service.find(job)
        if_interrupted(f"see whether job {found.id} is being stopped: distrain status {found.id}")
        after = found if found.is_final else service.cancel(found.id, why=_who())
        if_interrupted(f"job {found.id} is being stopped all the same")
        if wait:
            print_end(service.wait(found.id, None, tell_changes), server, as_json=as_json)
            return
    if as_json:
        state = {"asked": not found.is_final, "state": after.state, "job": job_json(after)}
        print_answer(job_id=found.id, **state)
    if found.is_final:
        print_result(f"job {found.id} has ended already: {found.state}")
    else:
        print_result(f"job {found.id}: asked to stop")


def _who() -> str:
    import socket

    return f"somebody ran `distrain cancel` on host {socket.gethostname()}"


def _cancel_at_scheduler(scheduler: str, job: str, *, wait: bool, as_json: bool) -> None:
    from distrain.running import how_to_resume
    from distrain.submission import JobHandle, raise_for_state

    with connected(scheduler) as client:
        found = job_named(client, job)
        handle = JobHandle(client, found.job_id)
        state, view = found.state, None
        if not found.is_final:
            handle.cancel(_who())
            if_interrupted(f"job {found.job_id} is being stopped all the same")
        if wait:
            view = handle.watch(lambda _: None)
            state = view.state.value
    if as_json:
        print_answer(job_id=found.job_id, asked=not found.is_final, state=state)
    if found.is_final:
        print_result(f"job {found.job_id} has ended already: {state}")
    else:
        print_result(f"job {found.job_id}: {state if wait else 'asked to stop'}")
    if view is not None:
        saved, hint = view.checkpoints.step, None
        if saved is not None and found.run_dir:
            hint = how_to_resume(Path(found.run_dir), scheduler, saved)
        raise_for_state(view, hint=hint)
