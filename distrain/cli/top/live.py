"""The screen of `distrain top`: it looks again and again, and does what keys say."""

import time
from typing import TYPE_CHECKING, Any

from distrain.cli.top.choice import chosen, moved
from distrain.cli.top.keys import Key, keyboard
from distrain.cli.top.view import framed, screen

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from distrain.cli.top.dashboard import Dashboard


def show(console: "Console", dashboard: "Dashboard", job_id: str | None, interval_s: float) -> None:
    """Show all jobs and one of them until somebody quits.

    Args:
        console: A terminal.
        dashboard: Where to ask.
        job_id: The job to show more of; `None` for the newest.
        interval_s: How often to look.

    Raises:
        ClusterError: The dashboard cannot be read from the start.
        InputError: It does not know the wanted job.
        KeyboardInterrupt: Ctrl-C.
    """
    from rich.live import Live

    watched = Watched(dashboard, job_id)
    watched.look()  # an address that is wrong from the start is an error
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(watched, console.size.height, keys.fd is not None), refresh=True)
            pressed = keys.wait(interval_s)
            if Key.QUIT in pressed:
                return
            for key in pressed:
                watched.press(key)
            watched.look_again()


def _drawn(watched: "Watched", height: int, with_keys: bool) -> "RenderableType":
    note = f"{time.strftime('%H:%M:%S')}  {watched.note}"
    height -= with_keys
    drawn = screen(watched.jobs, watched.job, watched.train, height, note)
    return framed(drawn, pinned=watched.wanted is not None) if with_keys else drawn


class Watched:
    """What is known of the jobs, and more of one of them.

    Args:
        dashboard: Where to ask.
        job_id: The one to know more of; `None` for the newest.

    Attributes:
        jobs: All, the newest first.
        job: The one, with its ranks; `None` without any.
        train: Its curves by column.
        wanted: The job that was picked; `None` while the newest is followed.
        note: Where this comes from, or what is wrong with it.
    """

    def __init__(self, dashboard: "Dashboard", job_id: str | None):
        self.dashboard = dashboard
        self.jobs: list[dict[str, Any]] = []
        self.job: dict[str, Any] | None = None
        self.train: dict[str, list[float | None]] = {}
        self.wanted = job_id
        self.note = dashboard.url
        self._of, self._cursor = "", ""

    def look(self) -> None:
        """Ask for what is new.

        Raises:
            ClusterError: The dashboard cannot be read.
            InputError: It does not know the wanted job.
        """
        self.jobs = self.dashboard.jobs()
        job_id = chosen(self.jobs, self.wanted)
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

    def look_again(self) -> None:
        """Ask for what is new; what goes wrong stands in `note`: a scheduler may come back."""
        from distrain.cli.text import clean_line
        from distrain.errors import DistrainError

        try:
            self.look()
            self.note = self.dashboard.url
        except DistrainError as error:
            self.note = f"{clean_line(error.message)}; trying again"

    def press(self, key: Key) -> None:
        """Choose another job, or pin the one that is shown, or follow the newest again."""
        if key in (Key.UP, Key.DOWN):
            shown = chosen(self.jobs, self.wanted)
            self.wanted = moved(self.jobs, shown, -1 if key is Key.UP else 1)
        elif key is Key.PIN:
            self.wanted = chosen(self.jobs, None) if self.wanted is None else None
