"""The screen of `distrain top`, which is updated until the command is interrupted."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distrain.cli.output import clean_line
from distrain.cli.top.tables import Document, screen
from distrain.errors import DistrainError
from distrain.jobs.states import FINAL_STATES

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.cli.top.fetch_jobs import Dashboard


def chosen(jobs: Sequence[Document], job_id: str | None) -> str | None:
    """Return the job to show: `job_id`, else the newest unfinished job, else the newest.

    `jobs` are the newest first. `None` if there are none.
    """
    if job_id is not None:
        return job_id
    unfinished = [job["id"] for job in jobs if job["state"] not in FINAL_STATES]
    return next(iter(unfinished or [job["id"] for job in jobs]), None)


def show(console: "Console", dashboard: "Dashboard", job_id: str | None, interval_s: float) -> None:
    from rich.live import Live

    state = DashboardView(dashboard, job_id)
    state.update()  # a wrong address is an error at the start
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            note = f"{time.strftime('%H:%M:%S')}  {state.note}"
            live.update(screen(state.jobs, state.job, console.size.height, note), refresh=True)
            time.sleep(interval_s)
            state.try_update()


class DashboardView:
    def __init__(self, dashboard: "Dashboard", job_id: str | None):
        self.dashboard = dashboard
        self.jobs: list[dict[str, Any]] = []  # newest first
        self.job: dict[str, Any] | None = None  # the shown job, with its ranks
        self.wanted = job_id  # the job to show; `None` for the newest
        self.note = dashboard.url  # or the error when reading it

    def update(self) -> None:
        self.jobs = self.dashboard.jobs()
        job_id = chosen(self.jobs, self.wanted)
        self.job = None if job_id is None else self.dashboard.job(job_id)

    def try_update(self) -> None:
        """Update the state; put an error into `note`, since the scheduler may come back."""
        try:
            self.update()
            self.note = self.dashboard.url
        except DistrainError as error:
            self.note = f"{clean_line(error.message)}; retrying"
