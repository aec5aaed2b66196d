"""`distrain submit`: submits a job to a service or a scheduler, and returns."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import JobServer, id_option, job_server_options, wait_option
from distrain.cli.options import PATH, json_option, overrides_option

if TYPE_CHECKING:
    from distrain.jobs.spec.job import JobSpec


@click.command("submit")
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@overrides_option
@click.option("--project", help="The project in the service. Default: `default`.")
@click.option(
    "--cluster", help="The cluster in the service; required if the project may use several."
)
@click.option(
    "--priority", type=int, help="The priority of the job. Default: queue.priority of the spec."
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag; may be repeated.")
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="First let a worker check the data; do not submit the job if it finds mistakes.",
)
@wait_option
@click.option("--follow", "follows", is_flag=True, help="Like --wait, and print the progress.")
@id_option
@click.option("--run-dir", type=PATH, help="With --scheduler: the run folder. Default: runs/JOB.")
@job_server_options("The Dask scheduler to submit to.")
@json_option("Print the job as JSON: as it was submitted, or with --wait at its end.")
def command(
    spec_file: Path,
    overrides: tuple[str, ...],
    project: str | None,
    cluster: str | None,
    priority: int | None,
    tags: tuple[str, ...],
    checks: bool,
    waits: bool,
    follows: bool,
    job_id: str | None,
    run_dir: Path | None,
    server: JobServer,
) -> None:
    """Submit the job in SPEC.yaml, print its id, and end; the job continues.

    Relative paths in the spec are resolved from the folder in which this command runs, not from the
    folder of the spec. With a service, the service chooses the run folder. If this command ends
    before the service has answered, it prints the job's id. Repeat the command with --id ID:
    nothing is submitted twice.

    With --wait or --follow, the exit code is that of the job's end: 0, 100 if it failed, 103 if it
    was cancelled. Ctrl-C ends this command, with the exit code 130, but not the job.

    With --check a worker first reads the files' footers and checks paths and model. This takes some
    seconds, and needs a running cluster with a free worker. Without --check, the job's first
    attempt fails if the workers cannot read a file. With --check the exit code is 1 for mistakes,
    69 if no worker could check.

    With --scheduler, this command submits like `distrain train --detach`, with further options:
    --check, --wait, --follow, --priority, --tag and --id.

    \b
    Examples:
      distrain submit job.yaml
      distrain submit job.yaml --check
      distrain submit job.yaml --set train.epochs=3 --tag team=ads --follow
      distrain submit job.yaml --server https://jobs.example --project ads --json
      distrain submit job.yaml --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
    """
    from distrain.cli.jobs.api_jobs import parse_tags
    from distrain.jobs.spec.load import load_spec

    if_interrupted("the job was not submitted")
    more = parse_tags(tags)
    spec = load_spec(spec_file, overrides)
    if not server.is_service and (project or cluster):
        raise click.UsageError("--project and --cluster are for a service.")
    if server.is_service and run_dir is not None:
        raise click.UsageError("--run-dir is for --scheduler: a service chooses it.")
    with server.jobs() as jobs:
        if not server.is_service:
            spec = _with_queue(spec, priority, more)
            jobs.submit(spec, run_dir, waits=waits or follows, checks=checks, job_id=job_id)
            return
        asked = {"project": project, "cluster": cluster, "priority": priority, "tags": more}
        job, what = jobs.submit(spec, asked, checks=checks, job_id=job_id)
        jobs.finish(job, what, waits=waits, follows=follows)


def _with_queue(spec: "JobSpec", priority: int | None, tags: dict[str, str]) -> "JobSpec":
    if priority is not None:
        queue = spec.queue.model_copy(update={"priority": priority})
        spec = spec.model_copy(update={"queue": queue})
    return spec.model_copy(update={"tags": {**spec.tags, **tags}}) if tags else spec
