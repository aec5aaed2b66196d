"""Draws a scheduler's jobs and the ranks of one of them; no I/O."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distrain.cli.jobs.list import TABLE_STYLE, JobsTable
from distrain.cli.jobs.status_lines import progress_line, state_line
from distrain.cli.output import clean_line, table_of
from distrain.formatting import count, milliseconds, percent, phase_name
from distrain.jobs.api_answers import Job
from distrain.runs.records.merging import add_up, phase_shares
from distrain.scheduler.history.ranks import is_straggler

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Rank = Mapping[str, Any]
"""One rank in the JSON of the scheduler's API."""


def screen(jobs: Sequence[Job], job: Job | None, most_ranks: int, note: str) -> "RenderableType":
    """Return the screen: `note`, then `job` with up to `most_ranks` of its ranks, then all jobs.

    If there are more ranks, the slowest are shown.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(note, style="dim", no_wrap=True, overflow="ellipsis")]
    if job is not None:
        ranks = job.document.get("ranks") or ()
        parts += [*map(Text, _about(job, ranks)), _ranks_table(ranks, most_ranks)]
        rest = max(len(ranks), job.num_ranks) - most_ranks
        parts += [Text(f"and {rest} other ranks", style="dim")] if rest > 0 else []
        parts.append(Text(""))
    return Group(*parts, JobsTable(jobs) if jobs else Text("no jobs yet"))


def _about(job: Job, ranks: Sequence[Rank]) -> list[str]:
    document = job.document
    lines = [f"{clean_line(job.id)}, attempt {job.attempt}: {state_line(job)}"]
    if job.step:
        lines.append(progress_line(document))
    slowest = document.get("slowest")
    if slowest and is_straggler(slowest):
        lines.append(
            f"slowest: rank {slowest['rank']}, {milliseconds(slowest.get('step_time_s'))} a step; "
            f"median {milliseconds(slowest.get('median_step_time_s'))}"
        )
    if shares := largest_shares(ranks):
        lines.append(
            "time: " + ", ".join(f"{phase_name(name)} {pct:.0f} %" for name, pct in shares)
        )
    return lines


def largest_shares(ranks: Sequence[Rank]) -> list[tuple[str, float]]:
    """Return each phase and its share, in percent, of the wall time of all ranks together.

    The largest share comes first. Shares below 0.5 % are left out.
    """
    shares = phase_shares(add_up([rank.get("total_seconds") or {} for rank in ranks])).items()
    return sorted((s for s in shares if s[1] >= 0.5), key=lambda share: -share[1])


def _ranks_table(ranks: Sequence[Rank], most: int) -> "Table":
    slowest = sorted(ranks, key=lambda rank: -(rank.get("step_time_s") or 0.0))[:most]
    numbers = ("RANK", "STEP", "ROWS/S", "STEP TIME", "WAITING", "GPU")
    columns = [
        (name, {"justify": "right" if name in numbers else "left", "no_wrap": True})
        for name in ("RANK", "HOST", "DOING", *numbers[1:])
    ]
    rows = (
        (
            rank["rank"],
            clean_line(rank.get("host") or "-"),
            _doing(rank),
            rank.get("step") or 0,
            count(rank.get("rows_per_s")),
            milliseconds(rank.get("step_time_s")),
            percent(rank.get("stall_pct"), 0),
            percent((rank.get("gpu") or {}).get("utilisation_pct"), 0),
        )
        for rank in sorted(slowest, key=lambda rank: int(rank["rank"]))
    )
    return table_of(columns, rows, **TABLE_STYLE)


def _doing(rank: Rank) -> str:
    doing, waiting = clean_line(rank.get("doing") or "-"), clean_line(rank.get("waiting_for") or "")
    return f"{doing} ({waiting})" if waiting else doing
