"""`distrain submit`: give a job to a service, or to a scheduler, and leave it there."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.place import chosen, place_options, service_at
from distrain.cli.options import PATH, json_option, overrides_option
from distrain.cli.output import json_wanted, print_answer, print_remark, print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrain.client import Client, Job
    from distrain.spec import JobSpec


@click.command("submit")
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@overrides_option
@click.option("--project", help="The service's project. Default: the service's own.")
@click.option("--cluster", help="The service's cluster; needed where several can be used.")
@click.option("--priority", type=int, help="Default: the spec's queue.priority.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag; may be repeated.")
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="First have a worker look at the data; submit nothing that it finds mistakes in.",
)
@click.option("--wait", "waits", is_flag=True, help="Return at the job's end, with its exit code.")
@click.option("--follow", "follows", is_flag=True, help="--wait, and print its progress.")
@click.option(
    "--again", is_flag=True, help="Submit anew, also where the same submission was interrupted."
)
@click.option(
    "--run-dir", type=PATH, help="With --scheduler: where the run's files go. Default: runs/JOB."
)
@place_options("The Dask scheduler to submit to.")
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
    again: bool,
    run_dir: Path | None,
    scheduler: str | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Submit the job in SPEC.yaml, print its id, and end; the job goes on.

    With a service, relative paths of the spec are made absolute here, and the service chooses the
    run directory. If this command is interrupted or killed before the service has answered, the
    same command finds the job that was made, and submits nothing twice; --again does.

    Ctrl-C with --wait or --follow ends this command and leaves the job alone. The exit code is then
    that of the job's end: 0, 100 if it failed, 103 if it was cancelled.

    With --check a worker reads the files' footers and tries places and model before anything is
    submitted, which takes some seconds; it needs a cluster that runs, with a worker that has room.
    Without it a file that the workers do not see ends the job's first attempt. The exit code is
    then 1 for mistakes, 69 if no worker could look.

    With --scheduler this is `distrain train --detach`.

    \b
    Examples:
      distrain submit job.yaml
      distrain submit job.yaml --check
      distrain submit job.yaml --set train.epochs=3 --tag team=ads --follow
      distrain submit job.yaml --server https://jobs.example --project ads --json
      distrain submit job.yaml --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
    """
    from distrain.cli.jobs.served import parse_tags
    from distrain.spec import load_spec, with_absolute_paths

    place = chosen(scheduler, server)
    if_interrupted("the job was not submitted")
    more = parse_tags(tags)
    spec = with_absolute_paths(load_spec(spec_file, overrides))
    if place.server is None:
        assert place.scheduler is not None
        if project or cluster or again:
            raise click.UsageError("--project, --cluster and --again are for a service.")
        from distrain.cli.jobs.detached import submit_detached

        spec = with_queue(spec, priority, more)
        submit_detached(spec, place.scheduler, run_dir, waits=waits or follows, checks=checks)
        return
    if run_dir is not None:
        raise click.UsageError("--run-dir is for --scheduler: a service chooses it.")
    from distrain.client import submission

    body = submission(spec_document(spec), project, cluster, priority, more)
    with service_at(place.server) as client:
        if checks:
            from distrain.cli.jobs.checking import check_data

            check_data(client, body)
        job = _submitted(client, body, again=again)
        finish(client, job, waits=waits, follows=follows, as_json=as_json)


def with_queue(spec: "JobSpec", priority: int | None, tags: dict[str, str]) -> "JobSpec":
    if priority is not None:
        queue = spec.queue.model_copy(update={"priority": priority})
        spec = spec.model_copy(update={"queue": queue})
    return spec.model_copy(update={"tags": {**spec.tags, **tags}}) if tags else spec


def spec_document(spec: "JobSpec") -> dict[str, Any]:
    """What a spec sets, without defaults: a service of another version has its own."""
    from distrain.errors import DistrainError
    from distrain.spec import parse_spec

    short: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    with suppress(DistrainError):
        if parse_spec(short) == spec:
            return short
    whole: dict[str, Any] = spec.model_dump(mode="json")
    return whole


def _submitted(client: "Client", body: dict[str, Any], *, again: bool) -> "Job":
    """The job, under a key that is on disk before the first request."""
    other = " (--again submits another one)"
    return kept(client, body, lambda key: client.submit_body(body, key), again=again, other=other)


def kept(
    client: "Client",
    what: dict[str, Any],
    make: "Callable[[str], Job]",
    *,
    again: bool = False,
    other: str = "",
) -> "Job":
    """The job that a request makes, under a key that is on disk before the request is sent.

    Args:
        what: What makes it the same request as an earlier one.
        make: Sends it.
        again: Make another job, whatever was left behind.
        other: How people get another job, for where one was left behind.
    """
    from distrain.cli.jobs.pending import age, digest, pending
    from distrain.client import ServiceError, ServiceUnavailable, state_folder
    from distrain.wording import duration

    folder = state_folder() / "submissions"
    same = digest(client.address, what)
    with pending(folder, same, time.time(), again=again) as note:
        if note.is_old:
            print_remark(
                f"the same submission was left unanswered {duration(age(note), 0)} ago: looking "
                f"for its job, or submitting it now{other}"
            )
        if_interrupted(
            "nobody knows whether the job was submitted; the same command finds it, and submits "
            "nothing twice"
        )
        try:
            job = make(note.key)
        except ServiceUnavailable as error:
            error.hint = "Repeat the same command: it submits nothing twice."
            raise
        except ServiceError as error:
            if error.status is not None and error.code != "key_in_flight":
                note.answered()
            raise
        note.answered()
    return job


def finish(
    client: "Client", job: "Job", *, waits: bool, follows: bool, as_json: bool, what: str = ""
) -> None:
    """Print a job that was submitted, resumed or cloned; wait for its end if that is wanted."""
    from distrain.cli.jobs.served import (
        follow,
        how_to_follow,
        job_json,
        print_end,
        tell_changes,
    )

    how = how_to_follow(job.id, client.address)
    what = what or ("was submitted already" if job.replayed else "is submitted")
    if_interrupted(f"job {job.id} {what} and goes on without this command; {how}")
    print_remark(f"job {job.id} {what}") if waits or follows else print_result(
        f"job {job.id} {what}"
    )
    if waits or follows:
        end = follow(client, job.id) if follows else client.wait(job.id, on_change=tell_changes)
        print_end(end, client.address, as_json=as_json)
        return
    if json_wanted():
        print_answer(server=client.address, job_id=job.id, job=job_json(job))
    print_remark(how)
