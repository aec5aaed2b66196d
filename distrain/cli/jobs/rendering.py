"""Jobs for people: a table of all, and lines about one. Pure: it knows no scheduler."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from distrain.cli.params import SCHEDULER_VARIABLE
from distrain.cli.text import clean_line
from distrain.report.wording import count, duration

if TYPE_CHECKING:
    from rich.table import Table

    from distrain.coordinator.listing import Listing
    from distrain.coordinator.view import JobView

STATE_STYLES = {"running": "green", "succeeded": "blue", "failed": "red", "restarting": "yellow"}
HEADINGS = ("JOB", "NAME", "STATE", "RANKS", "STEP", "ROWS/S", "AGE", "WHY")


def cells(job: "Listing") -> tuple[str, ...]:
    """A job's row of the table, under `HEADINGS`."""
    return (
        clean_line(job.job_id),
        clean_line(job.name),
        job.state,
        str(job.num_ranks),
        f"{job.step}/{job.num_steps or '?'}",
        count(job.rows_per_s),
        age(job.age_s),
        clean_line(job.why_pending or job.reason or ""),
    )


def jobs_table(jobs: "Sequence[Listing]") -> "Table":
    """All of some jobs, a row each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold dim")
    for heading in HEADINGS:
        number = heading in ("RANKS", "STEP", "ROWS/S", "AGE")
        # An id is what other commands take: it is never cut.
        whole = heading == "JOB"
        table.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=not whole,
            overflow="fold" if whole else "ellipsis",
        )
    for job in jobs:
        row = cells(job)
        style = STATE_STYLES.get(job.state, "")
        table.add_row(*(Text(cell, style if n == 2 else "") for n, cell in enumerate(row)))
    return table


def status_lines(job: "Listing", view: "JobView") -> list[str]:
    """How one job stands."""
    facts: dict[str, str] = {
        "job": job.job_id,
        "state": job.state + (f": {view.why_pending}" if view.why_pending else ""),
        "submitted": f"{age(job.age_s)} ago",
        "ranks": str(job.num_ranks),
        "attempt": str(view.attempt),
        "step": f"{job.step}/{job.num_steps or '?'}",
        "rows/s": count(job.rows_per_s),
        "priority": str(job.priority),
        "checkpoints": _checkpoints(view),
        "run directory": job.run_dir,
    }
    if job.tags:
        facts["tags"] = ", ".join(f"{name}={value}" for name, value in job.tags.items())
    if view.model_path:
        facts["model"] = view.model_path
    if view.reason:
        facts["reason"] = view.reason
    lines = [f"{name:15}{clean_line(value)}" for name, value in facts.items()]
    lines += [
        f"{'restart':15}attempt {setback.attempt} ended after step {setback.step}: "
        f"{setback.reason}: {clean_line(setback.message)}"
        for setback in view.restarts
    ]
    return [*lines, *(view.message or "").splitlines()]


def how_to_follow(job_id: str, scheduler: str, environment: Mapping[str, str] = os.environ) -> str:
    """The commands that follow a job and stop it, for a cluster at an address."""
    at = "" if environment.get(SCHEDULER_VARIABLE) == scheduler else f" --scheduler {scheduler}"
    return f"follow it: distrain attach {job_id}{at}; stop it: distrain cancel {job_id}{at}"


def age(seconds: float) -> str:
    """A time span in one or two units.

    >>> age(4.2), age(75), age(3700), age(90_000)
    ('4s', '1m15s', '1h01m', '1d01h')
    """
    if seconds >= 86400:
        return f"{int(seconds) // 86400}d{int(seconds) % 86400 // 3600:02d}h"
    return f"{seconds:.0f}s" if seconds < 59.5 else duration(seconds)


def _checkpoints(view: "JobView") -> str:
    saved = view.checkpoints
    return f"{saved.count}, the last of step {saved.step}: {saved.path}" if saved.count else "none"
