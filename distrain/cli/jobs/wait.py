"""`distrain wait`: wait for a job's end."""

import time
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.lookup import connected, job_named
from distrain.cli.jobs.place import chosen, job_options, service_at
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_remark, print_result

if TYPE_CHECKING:
    from distrain.jobs import JobView


@click.command("wait")
@click.argument("job")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds at most.")
@job_options
@json_option("Print the job as JSON at its end.")
def command(
    job: str, timeout_s: float | None, scheduler: str | None, server: str | None, as_json: bool
) -> None:
    """Wait for the end of JOB, also across restarts of the service.

    JOB is a job's id, or its beginning. The exit code is 0 if the job succeeded, 100 if it failed,
    103 if it was cancelled, 104 if it has not ended within --timeout, and of a service 102 if there
    is no such job. Ctrl-C leaves the job alone.

    \b
    Examples:
      distrain wait dlrm-20260301-123000-ab12
      distrain wait dlrm --timeout 3600 || echo "exit code $?"
    """
    place = chosen(scheduler, server)
    if place.server is None:
        assert place.scheduler is not None
        _wait_at_scheduler(job, place.scheduler, timeout_s, as_json)
        return
    from distrain.cli.jobs.served import how_to_follow, print_end, tell_changes

    with service_at(place.server) as client:
        found = client.find(job)
        if_interrupted(f"job {found.id} goes on; {how_to_follow(found.id, place.server)}")
        end = client.wait(found.id, timeout_s, tell_changes)
        print_end(end, place.server, as_json=as_json)


def _wait_at_scheduler(job: str, scheduler: str, timeout_s: float | None, as_json: bool) -> None:
    from distrain.cli.outcome import how_to_follow
    from distrain.client import WaitTimedOut
    from distrain.submission import JobHandle, raise_for_state

    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    told: list[str] = []
    with connected(scheduler) as client:
        found = job_named(client, job)
        follow = how_to_follow(found.job_id, scheduler)
        if_interrupted(f"job {found.job_id} goes on without this command; {follow}")

        def look(view: "JobView") -> None:
            if view.state.value not in told[-1:]:
                told.append(view.state.value)
                print_remark(view.state.value)
            if until_s is not None and time.monotonic() >= until_s and not view.state.is_final:
                raise WaitTimedOut(
                    f"job {found.job_id} has not ended within {timeout_s:g} s",
                    where={"scheduler": scheduler, "state": view.state.value},
                    hint=f"It goes on; {follow}",
                )

        view = JobHandle(client, found.job_id).watch(look)
    if as_json:
        print_answer(job={**found.to_json(), "state": view.state.value, "reason": view.reason})
    raise_for_state(view)
    print_result(f"job {found.job_id}: {view.state.value}")
