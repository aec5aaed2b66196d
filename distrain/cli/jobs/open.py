"""`distrain open`: show a job's page in the browser."""

import webbrowser

import click

from distrain.cli.jobs.place import READ_S, Place, job_options
from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_result, print_warning


@click.command("open")
@click.argument("job", required=False)
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@job_options
@json_option("Print the address as JSON; no browser is opened.")
def command(job: str | None, no_browser: bool, place: Place, as_json: bool) -> None:
    """Open the page of JOB, or of all jobs, in the browser, and print its address.

    JOB is a job's id, or its beginning. A bare scheduler has one page for all its jobs, in Dask's
    dashboard.

    \b
    Examples:
      distrain open dlrm
      distrain open --no-browser
    """
    with place.jobs(READ_S) as jobs:
        url = jobs.page(job)
    if as_json:
        print_answer(url=url)
        return
    print_result(url)
    if not no_browser and not webbrowser.open(url):
        print_warning("no browser could be opened here")
