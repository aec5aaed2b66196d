"""What a job's page shows of its run directory: curves, time by phase, ranks, files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from distrain.errors import DistrainError
from distrain.jobs import Record
from distrain.run_paths import RunPaths
from distrain.runs import read_records
from distrain.service.page.curves import Line, by_step, draw
from distrain.wording import count, number, percent

MOST_RANKS = 64
MOST_FILES = 200

_CURVES = (
    ("Loss", "loss", ("train", "valid"), number),
    ("AUC", "auc", ("train", "valid"), number),
    ("Rows/s", "rows_per_s", ("train",), count),
    ("Waiting for data, mean", "stall_mean_pct", ("train",), percent),
)


@dataclass(frozen=True)
class Curve:
    """A picture and the last value in words."""

    title: str
    svg: Markup
    last: str


@dataclass(frozen=True)
class Phase:
    """A phase of a step, and its share of the mean rank's time."""

    name: str
    share_pct: float


@dataclass(frozen=True)
class Rank:
    """A rank and the share of its time that it waited for data."""

    rank: int
    stall_pct: float


def records_of(run_dir: str) -> list[Record]:
    """The records of a run; none where there is no file, or none that can be read."""
    try:
        return read_records(RunPaths(Path(run_dir)))
    except (OSError, DistrainError):
        return []


def curves(records: Sequence[Record]) -> list[Curve]:
    """The curves that have points."""
    rows: list[dict[str, Any]] = [
        {**asdict(record), "stall_mean_pct": record.stall_mean_pct} for record in records
    ]
    found = []
    for title, name, splits, words in _CURVES:
        lines = [Line(split, by_step(rows, split, name)) for split in splits]
        svg = draw(title, lines)
        if svg:
            lasts = [
                f"{line.css_class} {words(line.points[-1][1])}" for line in lines if line.points
            ]
            found.append(Curve(title, Markup(svg), ", ".join(lasts)))  # escaped there
    return found


def phases(records: Sequence[Record]) -> list[Phase]:
    """The shares of the last training record, the largest first."""
    seconds = next((r.seconds for r in reversed(records) if r.seconds), None) or {}
    whole = sum(seconds.values())
    if not whole > 0:
        return []
    shares = [Phase(name, 100 * value / whole) for name, value in seconds.items()]
    return sorted(shares, key=lambda phase: -phase.share_pct)


def ranks(records: Sequence[Record]) -> list[Rank]:
    """The ranks of the last record that lists them; those of large jobs that waited longest."""
    last = next((r for r in reversed(records) if r.split == "train"), None)
    if last is None:
        return []
    found = [Rank(rank, pct) for rank, pct in enumerate(last.stall_pct)]
    if not found and last.stall_summary is not None:
        found = [Rank(int(rank), pct) for rank, pct in last.stall_summary["worst"]]
    return found[:MOST_RANKS]


@dataclass(frozen=True)
class File:
    """A file of a run, by its path in the run directory."""

    path: str
    size_bytes: int


def files_of(run_dir: str) -> list[File]:
    """The files of a run that people look for first, then its logs, at most `MOST_FILES`."""
    root = Path(run_dir)
    candidates = [*_inside(root), *_inside(root / "model"), *sorted(root.glob("logs/*/*.log"))]
    return [
        File(path.relative_to(root).as_posix(), path.stat().st_size)
        for path in candidates
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    ][:MOST_FILES]


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
