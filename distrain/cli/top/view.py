"""Jobs and ranks on 80 columns: as tables on a terminal, as lines elsewhere. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distrain.cli.text import clean_line
from distrain.cli.top.choice import ENDED, Document, around, listed, shared_lines
from distrain.cli.top.glyphs import shortened, sparkline
from distrain.report.wording import count, duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

STATE_STYLES = {"running": "green", "succeeded": "blue", "failed": "red", "restarting": "yellow"}
COLUMNS, JOB_COLUMNS = 80, 27


def framed(drawn: "RenderableType", *, pinned: bool) -> "RenderableType":
    """What is drawn, with the keys on the terminal's last line."""
    from rich.layout import Layout
    from rich.text import Text

    pin = "space: follow the newest" if pinned else "space: pin this job"
    keys = Text(f"j/k, arrows: choose a job   {pin}   q: quit", style="dim", no_wrap=True)
    frame = Layout()
    frame.split_column(Layout(drawn), Layout(keys, size=1))
    return frame


def job_line(job: Document) -> str:
    """A job in one line.

    >>> job_line({"job_id": "a-1", "state": "pending", "why_pending": "needs 2 workers"})
    'a-1  pending: needs 2 workers'
    """
    why = job.get("why_pending") or (job.get("reason") if job["state"] in ENDED else "")
    parts = [
        clean_line(job["job_id"]),
        f"{job['state']}: {clean_line(why)}" if why else job["state"],
    ]
    if job.get("step"):
        parts.append(f"step {job['step']}/{job.get('num_steps') or '?'}")
        parts.append(f"{count(job.get('rows_per_s'))} rows/s")
        parts.append(f"loss {_metric(job.get('loss'))}  AUC {_metric(_auc(job))}")
        parts.append(f"stall {_percent(job.get('stall_pct'))}")
    if job.get("eta_s") is not None:
        parts.append(f"ETA {duration(job['eta_s'])}")
    if job.get("restarts"):
        parts.append(f"restarts {job['restarts']}")
    return "  ".join(parts)


def rank_line(rank: Document) -> str:
    """A rank in one line."""
    return "  ".join(
        [
            f"rank {rank['rank']}",
            clean_line(rank.get("host") or "-"),
            _doing(rank),
            f"step {rank.get('step') or 0}",
            f"{count(rank.get('rows_per_s'))} rows/s",
            f"{_milliseconds(rank.get('step_time_s'))} a step",
            f"stall {_percent(rank.get('stall_pct'))}",
        ]
    )


def screen(
    jobs: Sequence[Document],
    job: Document | None,
    train: Mapping[str, Sequence[float | None]],
    height: int,
    note: str,
) -> "RenderableType":
    """All of it for a terminal.

    Args:
        jobs: All jobs, the newest first.
        job: The one whose ranks are shown.
        train: Its curves by column.
        height: Lines of the terminal.
        note: Where this comes from, and what is wrong with it.
    """
    from rich.console import Group
    from rich.text import Text

    head = Text(note, style="dim", no_wrap=True, overflow="ellipsis")
    if not jobs:
        return Group(head, Text("no jobs yet"))
    job_id = job["job_id"] if job else None
    about = [] if job is None else [*_about(job), *_curves(train)]
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
        room = max(1, for_ranks - 1) if for_ranks < num_ranks else for_ranks
        parts += [Text(""), *map(Text, about), Text(""), *_ranks(job, room)]
    return Group(*parts)


def _curves(train: Mapping[str, Sequence[float | None]]) -> list[str]:
    named = (("rows_per_s", "rows/s"), ("loss", "loss  "), ("auc", "AUC   "))
    drawn = ((label, sparkline(train.get(name, ()), 60)) for name, label in named)
    return [f"{label}  {line}" for label, line in drawn if line]


def _jobs_table(jobs: Sequence[Document], chosen_id: str | None) -> "Table":
    table = _table(
        ("JOB", "left", JOB_COLUMNS), ("STATE", "left", 10), ("PROGRESS", "left", 10),
        ("ROWS/S", "right", 9), ("LOSS", "right", 6), ("AUC", "right", 6), ("ETA", "right", 6),
    )  # fmt: skip
    from rich.text import Text

    for job in jobs:
        state = Text(job["state"], style=STATE_STYLES.get(job["state"], ""))
        table.add_row(
            Text(
                shortened(clean_line(job["job_id"]), JOB_COLUMNS),
                style="bold reverse" if job["job_id"] == chosen_id else "",
            ),
            state,
            _bar(job),
            count(job.get("rows_per_s")),
            _metric(job.get("loss")),
            _metric(_auc(job)),
            "-" if job.get("eta_s") is None else duration(job["eta_s"]),
        )
    return table


def _about(job: Document) -> list[str]:
    steps = f"step {job.get('step') or 0}/{job.get('num_steps') or '?'}"
    lines = [
        f"{clean_line(job['job_id'])}: {job['state']}, attempt {job.get('attempt')}, {steps}, "
        f"restarts {job.get('restarts') or 0}, checkpoints {job.get('checkpoints') or 0}"
    ]
    lines += [
        clean_line(job[name])[: 2 * COLUMNS] for name in ("why_pending", "message") if job.get(name)
    ]
    slowest = job.get("slowest")
    if slowest:
        lines.append(
            f"slowest: rank {slowest['rank']}, {_milliseconds(slowest.get('step_time_s'))} a step; "
            f"median {_milliseconds(slowest.get('median_step_time_s'))}"
        )
    if shares := phase_shares(job.get("ranks", ())):
        lines.append("time: " + ", ".join(f"{name} {pct:.0f} %" for name, pct in shares))
    return lines


def phase_shares(ranks: Sequence[Document]) -> list[tuple[str, float]]:
    """The shares of the ranks' wall time by phase, in percent, the largest first."""
    total: dict[str, float] = {}
    for rank in ranks:
        for phase, seconds in (rank.get("total_seconds") or {}).items():
            total[phase] = total.get(phase, 0.0) + seconds
    everything = sum(total.values())
    if not everything:
        return []
    shares = [(phase, 100 * seconds / everything) for phase, seconds in total.items()]
    return sorted((s for s in shares if s[1] >= 0.5), key=lambda share: -share[1])


def _ranks(job: Document, room: int) -> "list[RenderableType]":
    """The ranks; the slowest, where there is no room for all."""
    from rich.text import Text

    ranks = list(job.get("ranks", ()))
    shown = sorted(ranks, key=lambda rank: -(rank.get("step_time_s") or 0.0))[:room]
    table = _table(
        ("RANK", "right", 4), ("HOST", "left", 14), ("DOING", "left", 22), ("ROWS/S", "right", 9),
        ("STEP", "right", 9), ("STALL", "right", 6), ("GPU", "right", 4),
    )  # fmt: skip
    for rank in sorted(shown, key=lambda rank: int(rank["rank"])):
        gpu = rank.get("gpu") or {}
        table.add_row(
            str(rank["rank"]),
            clean_line(rank.get("host") or "-"),
            _doing(rank),
            count(rank.get("rows_per_s")),
            _milliseconds(rank.get("step_time_s")),
            _percent(rank.get("stall_pct")),
            _percent(gpu.get("utilisation_pct")).replace(" ", ""),
        )
    rest = _num_ranks(job) - len(shown)
    return [table, *([Text(f"and {rest} other ranks", style="dim")] if rest else [])]


def _num_ranks(job: Document) -> int:
    """All of its ranks, also those that the document leaves out."""
    return max(len(job.get("ranks", ())), job.get("num_ranks") or 0)


def _table(*columns: tuple[str, Any, int]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold dim")
    for name, justify, width in columns:
        table.add_column(name, justify=justify, width=width, no_wrap=True, overflow="ellipsis")
    return table


def _bar(job: Document) -> str:
    step, num_steps = job.get("step") or 0, job.get("num_steps")
    if not num_steps:
        return "-"
    done: float = min(1.0, step / num_steps)
    return "█" * round(5 * done) + "░" * (5 - round(5 * done)) + f"{100 * done:4.0f}%"


def _doing(rank: Document) -> str:
    doing, waiting = clean_line(rank.get("doing") or "-"), clean_line(rank.get("waiting_for") or "")
    return f"{doing} ({waiting})" if waiting else doing


def _auc(job: Document) -> float | None:
    """Of validation, where there is one."""
    names = ("valid_auc", "auc")
    known: list[float] = [job[name] for name in names if job.get(name) is not None]
    return known[0] if known else None


def _metric(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"
