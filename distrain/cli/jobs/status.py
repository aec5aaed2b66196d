"""`distrain status`: how one job stands."""

import click

from distrain.cli.jobs.asking import asked, cluster_options, meant
from distrain.cli.output import answer, tell
from distrain.cli.params import json_option


@click.command("status")
@click.argument("job")
@cluster_options
@json_option("Print the job as JSON.")
def command(job: str, scheduler: str | None, as_json: bool) -> None:
    """Say how JOB stands: its state, step, restarts, checkpoints, and why it waits or failed.

    JOB is a job's id, or its beginning. The exit code is 0 also for a job that failed.

    \b
    Examples:
      distrain status dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain status dlrm --json
    """
    from dataclasses import asdict

    from distrain.cli.jobs.rendering import status_lines
    from distrain.coordinator.handle import JobHandle

    with asked(scheduler) as client:
        found = meant(client, job)
        view = JobHandle(client, found.job_id).status()
    if as_json:
        more = {
            "message": view.message,
            "setbacks": [asdict(setback) for setback in view.restarts],
            "checkpoints": asdict(view.checkpoints),
            "model": view.model_path,
            "places": [dict(place) for place in view.rank_places],
        }
        answer(job={**found.to_json(), **more})
    for line in status_lines(found, view):
        tell(line)
