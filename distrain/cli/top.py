"""`distrain top`: what a scheduler's jobs do, on the terminal."""

import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from distrain.cli.dashboard import Dashboard


@click.command()
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    envvar="DASK_SCHEDULER_ADDRESS",
    help="The Dask scheduler; it is asked for its dashboard. Default: DASK_SCHEDULER_ADDRESS.",
)
@click.option(
    "--dashboard",
    "url",
    metavar="URL",
    help="The scheduler's dashboard, as `distrain train` prints it. Default: port 8787 here.",
)
@click.option("--job", "job_id", metavar="ID", help="Show this job's ranks. Default: the newest's.")
@click.option("--once", is_flag=True, help="Print plain lines of how things stand now, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
def command(
    scheduler: str | None, url: str | None, job_id: str | None, once: bool, interval_s: float
) -> None:
    """Show all jobs of a scheduler and the ranks of one, as they go on; Ctrl-C ends it.

    A rank's step time is of its own work: what it waited for others is left out. Where standard
    output is no terminal, a line is printed for each job whenever something changed.

    Any scheduler will do that `distrain train` has started or used, or that was started with
    `--preload distrain.preload`. Where it asks for a token, put that into DISTRAIN_DASHBOARD_TOKEN.

    \b
    Examples:
      distrain top --scheduler tcp://10.0.0.5:8786
      distrain top --dashboard http://10.0.0.5:8787 --job dlrm-20260301-123000-ab12
      distrain top --once
    """
    from rich.console import Console

    from distrain.cli.dashboard import dashboard_of

    dashboard = dashboard_of(scheduler, url)
    console = Console()
    try:
        if once:
            _print_once(dashboard, job_id)
        elif console.is_terminal:
            _show(console, dashboard, job_id, interval_s)
        else:
            _print_changes(dashboard, job_id, interval_s)
    except KeyboardInterrupt:
        pass


def _print_once(dashboard: "Dashboard", job_id: str | None) -> None:
    from distrain.cli.top_view import chosen, job_line, rank_line

    jobs = dashboard.jobs()
    for job in jobs:
        click.echo(job_line(job))
    shown = chosen(jobs, job_id)
    if shown is None:
        click.echo("no jobs yet")
        return
    document = dashboard.job(shown)
    for rank in document["ranks"]:
        click.echo(f"{shown}  {rank_line(rank)}")


def _print_changes(dashboard: "Dashboard", job_id: str | None, interval_s: float) -> None:
    from distrain.cli.top_view import job_line

    told: dict[str, str] = {}
    while True:
        for job in dashboard.jobs():
            if job_id in (None, job["job_id"]) and told.get(job["job_id"]) != (
                line := job_line(job)
            ):
                told[job["job_id"]] = line
                click.echo(line)
        time.sleep(interval_s)


def _show(
    console: "Console", dashboard: "Dashboard", job_id: str | None, interval_s: float
) -> None:
    from rich.live import Live

    from distrain.cli.top_view import screen

    watched = Watched(dashboard, job_id)
    watched.look()  # an address that is wrong from the start is an error
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for note in _looks(watched, interval_s):
            height = console.size.height
            live.update(
                screen(watched.jobs, watched.job, watched.train, height, note), refresh=True
            )


def _looks(watched: "Watched", interval_s: float) -> "Iterator[str]":
    """Look again and again, and say each time from where, and what is wrong."""
    from distrain.cli.glyphs import clean
    from distrain.errors import DistrainError

    note = watched.dashboard.url
    while True:
        yield f"{time.strftime('%H:%M:%S')}  {note}"
        time.sleep(interval_s)
        try:
            watched.look()
            note = watched.dashboard.url
        except DistrainError as error:  # a scheduler may come back
            note = f"{clean(error.message)}; trying again"


class Watched:
    """What is known of the jobs, and more of one of them.

    Args:
        dashboard: Where to ask.
        job_id: The one to know more of; `None` for the newest.

    Attributes:
        jobs: All, the newest first.
        job: The one, with its ranks; `None` without any.
        train: Its curves by column.
    """

    def __init__(self, dashboard: "Dashboard", job_id: str | None):
        self.dashboard = dashboard
        self.jobs: list[dict[str, Any]] = []
        self.job: dict[str, Any] | None = None
        self.train: dict[str, list[float | None]] = {}
        self._wanted = job_id
        self._of, self._cursor = "", ""

    def look(self) -> None:
        """Ask for what is new.

        Raises:
            ClusterError: The dashboard cannot be read.
            InputError: It does not know the wanted job.
        """
        from distrain.cli.top_view import chosen

        self.jobs = self.dashboard.jobs()
        job_id = chosen(self.jobs, self._wanted)
        if job_id is None:
            self.job, self.train, self._of = None, {}, ""
            return
        if job_id != self._of:
            self._of, self._cursor = job_id, ""
        self.job = self.dashboard.job(job_id)
        metrics = self.dashboard.metrics(job_id, self._cursor)
        if metrics["restart"] or not self._cursor:
            self.train = {}
        for name, values in metrics["train"].items():
            self.train.setdefault(name, []).extend(values)
        self._cursor = metrics["cursor"]
