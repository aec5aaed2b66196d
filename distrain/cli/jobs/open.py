"""`distrain open`: show a job's page in the browser."""

import webbrowser

import click

from distrain.cli.jobs.lookup import connected, job_named
from distrain.cli.jobs.place import READ_S, chosen, job_options, service_at
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result, print_warning
from distrain.errors import ClusterError, InputError


@click.command("open")
@click.argument("job", required=False)
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@job_options
@json_option("Print the address as JSON; no browser is opened.")
def command(
    job: str | None, no_browser: bool, scheduler: str | None, server: str | None, as_json: bool
) -> None:
    """Open the page of JOB, or of all jobs, in the browser, and print its address.

    JOB is a job's id, or its beginning. A bare scheduler has one page for all its jobs, in Dask's
    dashboard.

    \b
    Examples:
      distrain open dlrm
      distrain open --no-browser
    """
    place = chosen(scheduler, server)
    if place.server is not None:
        url = service_page(place.server, job)
    else:
        assert place.scheduler is not None
        url = _scheduler_page(place.scheduler, job)
    if as_json:
        print_answer(url=url)
        return
    print_result(url)
    if not no_browser and not webbrowser.open(url):
        print_warning("no browser could be opened here")


def service_page(server: str, job: str | None) -> str:
    """The address of a job's page, or of the list of jobs."""
    from distrain.client import parse_address

    address = parse_address(server)
    if address.socket is not None:
        raise InputError(
            "a browser cannot open a Unix socket",
            where={"server": address.text},
            hint="Ask who runs the service for its address for browsers.",
        )
    if job is None:
        return f"{address.base_url}/jobs"
    with service_at(server, READ_S) as client:
        return f"{address.base_url}/jobs/{client.find(job).id}"


def _scheduler_page(scheduler: str, job: str | None) -> str:
    with connected(scheduler) as client:
        if job is not None:
            job_named(client, job)
        link: str | None = client.dashboard_link
    if not link:
        raise ClusterError(
            "the scheduler has no dashboard",
            where={"scheduler": scheduler},
            hint="Start it with --dashboard-address, or use `distrain status`.",
        )
    return f"{link.removesuffix('/status')}/training"
