"""Draws jobs and ranks in 80 columns: as tables on a terminal, as lines elsewhere; no I/O.

A `Document` is one job or one rank in the JSON of the scheduler's API.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distrain.cli.output import STATE_STYLES, clean_line, table_of
from distrain.formatting import (
    UNKNOWN,
    aucs,
    count,
    duration,
    kept_step,
    milliseconds,
    percent,
    scores,
)
from distrain.jobs.api_answers import Job
from distrain.jobs.figures import phrases
from distrain.jobs.states import FINAL_STATES
from distrain.runs.records.merging import phase_shares
from distrain.scheduler.history.ranks import stands_out

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLUMNS, JOB_COLUMNS = 80, 25

Document = Mapping[str, Any]


def job_line(job: Document) -> str:
    """Describe a job in one line.

    >>> job_line({"id": "a-1", "state": "pending", "why_pending": "needs 2 workers"})
    'a-1  pending: needs 2 workers'
    """
    why = Job.read(job).why
    parts = [
        clean_line(job["id"]),
        f"{job['state']}: {clean_line(why)}" if why else job["state"],
    ]
    if job.get("step"):
        parts.append(f"step {job['step']}/{job.get('num_steps') or '?'}")
        parts += _scores(job)
    return "  ".join([*parts, *phrases(job, "line")])


def rank_line(rank: Document) -> str:
    parts = (
        f"rank {rank['rank']}",
        clean_line(rank.get("host") or "-"),
        _doing(rank),
        f"step {rank.get('step') or 0}",
        f"{count(rank.get('rows_per_s'))} rows/s",
        f"{milliseconds(rank.get('step_time_s'))} a step",
        f"waiting for data {percent(rank.get('stall_pct'), 0)}",
    )
    return "  ".join(parts)


def screen(
    jobs: Sequence[Document],
    job: Document | None,
    height: int,
    note: str,
) -> "RenderableType":
    """Return a screen of at most `height` lines: a note, the jobs, and the ranks of one job."""
    from rich.console import Group
    from rich.text import Text

    head = Text(note, style="dim", no_wrap=True, overflow="ellipsis")
    if not jobs:
        return Group(head, Text("no jobs yet"))
    job_id = job["id"] if job else None
    about = [] if job is None else _about(job)
    about_lines = sum(1 + (len(line) - 1) // COLUMNS for line in about)
    num_ranks = 0 if job is None else _num_ranks(job)
    # The head, two tables' headings, and an empty line before each block.
    free = height - about_lines - (2 if job is None else 5)
    for_jobs, for_ranks = shared_lines(free, len(jobs), num_ranks)
    for_jobs = max(1, for_jobs - 1) if for_jobs < len(jobs) else for_jobs
    shown = around(listed(jobs), job_id, for_jobs)
    parts: list[RenderableType] = [head, _jobs_table(shown, job_id)]
    if len(shown) < len(jobs):
        parts.append(Text(f"and {len(jobs) - len(shown)} more", style="dim"))
    if job is not None:
        rank_lines = max(1, for_ranks - 1) if for_ranks < num_ranks else for_ranks
        parts += [Text(""), *map(Text, about), Text(""), *_ranks(job, rank_lines)]
    return Group(*parts)


def listed(jobs: Sequence[Document]) -> list[Document]:
    """Return jobs in the order of the table: first unfinished, then ended ones."""
    return sorted(jobs, key=lambda job: job["state"] in FINAL_STATES)


def around(jobs: list[Document], job_id: str | None, lines: int) -> list[Document]:
    """Return at most `lines` neighbouring jobs, including the one with `job_id`.

    >>> [job["id"] for job in around([{"id": n} for n in "abcde"], "d", 2)]
    ['c', 'd']
    """
    place = next((n for n, job in enumerate(jobs) if job["id"] == job_id), 0)
    first = max(0, place - lines + 1)
    return jobs[first : first + lines]


def shared_lines(free: int, jobs: int, ranks: int) -> tuple[int, int]:
    """Divide the free lines of the screen between jobs and ranks.

    If there are too few lines, ranks get half, and each side gets what the other does not need.
    Each gets at least one line; a truncated side uses one of its lines to say so.

    >>> shared_lines(40, 11, 8), shared_lines(12, 11, 4), shared_lines(12, 30, 1000)
    ((11, 8), (8, 4), (6, 6))
    """
    for_ranks = min(ranks, max(free // 2, free - jobs, 1))
    return min(jobs, max(free - for_ranks, 1)), for_ranks


def _jobs_table(jobs: Sequence[Document], chosen_id: str | None) -> "Table":
    from rich.text import Text

    columns = (
        ("JOB", "left", JOB_COLUMNS), ("STATE", "left", 10), ("PROGRESS", "left", 10),
        ("ROWS/S", "right", 9), ("VALID/TRAIN AUC", "right", 15), ("LEFT", "right", 6),
    )  # fmt: skip
    rows = (
        (
            Text(
                shortened(clean_line(job["id"]), JOB_COLUMNS),
                style="bold reverse" if job["id"] == chosen_id else "",
            ),
            Text(job["state"], style=STATE_STYLES.get(job["state"], "")),
            _bar(job),
            count(job.get("rows_per_s")),
            aucs(*(job.get(n) for n in ("valid_auc", "auc", "valid_targets", "targets"))),
            duration(job.get("eta_s")),
        )
        for job in jobs
    )
    return _table(columns, rows)


def shortened(text: str, width: int) -> str:
    """Return a job's id cut in the middle, so that its beginning and its random end stay.

    >>> shortened("deep-and-cross-20260301-123000-ab12", 20)
    'deep-and…123000-ab12'
    """
    if len(text) <= width:
        return text
    tail = min(11, width // 2 + 1)
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def _about(job: Document) -> list[str]:
    facts = [
        f"{clean_line(job['id'])}: {job['state']}",
        f"attempt {job.get('attempt')}",
        f"step {job.get('step') or 0}/{job.get('num_steps') or '?'}",
    ]
    lines = [", ".join([*facts, *phrases(job, "line")])]
    lines += [
        clean_line(job[name])[: 2 * COLUMNS] for name in ("why_pending", "message") if job.get(name)
    ]
    if job.get("step"):
        lines.append("  ".join(_scores(job)))
    slowest = job.get("slowest")
    if slowest and stands_out(slowest):
        lines.append(
            f"slowest: rank {slowest['rank']}, {milliseconds(slowest.get('step_time_s'))} a step; "
            f"median {milliseconds(slowest.get('median_step_time_s'))}"
        )
    if shares := largest_shares(job.get("ranks", ())):
        lines.append("time: " + ", ".join(f"{name} {pct:.0f} %" for name, pct in shares))
    return lines


def largest_shares(ranks: Sequence[Document]) -> list[tuple[str, float]]:
    """Return each phase's share of the ranks' wall time in percent, the largest first.

    Leaves out shares below 0.5 %.
    """
    total: dict[str, float] = {}
    for rank in ranks:
        for phase, seconds in (rank.get("total_seconds") or {}).items():
            total[phase] = total.get(phase, 0.0) + seconds
    shares = phase_shares(total).items()
    return sorted((s for s in shares if s[1] >= 0.5), key=lambda share: -share[1])


def _ranks(job: Document, lines: int) -> "list[RenderableType]":
    """Return the table of ranks; only the slowest if not all fit."""
    from rich.text import Text

    ranks = list(job.get("ranks", ()))
    shown = sorted(ranks, key=lambda rank: -(rank.get("step_time_s") or 0.0))[:lines]
    columns = (
        ("RANK", "right", 4), ("HOST", "left", 14), ("DOING", "left", 22), ("ROWS/S", "right", 9),
        ("STEP", "right", 9), ("WAITING", "right", 7), ("GPU", "right", 4),
    )  # fmt: skip
    rows = (
        (
            rank["rank"],
            clean_line(rank.get("host") or "-"),
            _doing(rank),
            count(rank.get("rows_per_s")),
            milliseconds(rank.get("step_time_s")),
            percent(rank.get("stall_pct"), 0),
            percent((rank.get("gpu") or {}).get("utilisation_pct"), 0).replace(" ", ""),
        )
        for rank in sorted(shown, key=lambda rank: int(rank["rank"]))
    )
    rest = _num_ranks(job) - len(shown)
    more = [Text(f"and {rest} other ranks", style="dim")] if rest else []
    return [_table(columns, rows), *more]


def _num_ranks(job: Document) -> int:
    return max(len(job.get("ranks", ())), job.get("num_ranks") or 0)


def _table(columns: Sequence[tuple[str, str, int]], rows: Iterable[Sequence[object]]) -> "Table":
    """Return a table whose columns have a title, a justification and a width."""
    cut = {"no_wrap": True, "overflow": "ellipsis"}
    options = [(name, {"justify": side, "width": width, **cut}) for name, side, width in columns]
    style = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False, "header_style": "bold dim"}
    return table_of(options, rows, **style)


def _bar(job: Document) -> str:
    step, num_steps = job.get("step") or 0, job.get("num_steps")
    if not num_steps:
        return "-"
    share: float = min(1.0, step / num_steps)
    return "█" * round(5 * share) + "░" * (5 - round(5 * share)) + f"{100 * share:4.0f}%"


def _doing(rank: Document) -> str:
    doing, waiting = clean_line(rank.get("doing") or "-"), clean_line(rank.get("waiting_for") or "")
    return f"{doing} ({waiting})" if waiting else doing


def _scores(job: Document) -> list[str]:
    valid = scores(job.get("valid_loss"), job.get("valid_auc"), 4, job.get("valid_targets"))
    train = scores(job.get("loss"), job.get("auc"), 4, job.get("targets"))
    kept = kept_step(job.get("model_step"), job.get("step"), refit_steps=job.get("refit_steps"))
    model = [] if kept == UNKNOWN else [f"model: {kept}"]
    return [f"validation: {valid}", f"training: {train}", *model]
