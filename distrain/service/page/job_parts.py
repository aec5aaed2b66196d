"""The parts of a job's page from its run directory, beside curves: time by phase, ranks, files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from re import fullmatch

from distrain.jobs import Record, record_from_json
from distrain.run_paths import RunPaths
from distrain.runs import NotInRun, open_run_folder

MOST_RANKS = 64
MOST_FILES = 200
_READ_BYTES = 2**18
_LOOKED_AT = 20_000
_OF_OTHER_SHAPE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class PhaseShare:
    name: str
    share_pct: float


@dataclass(frozen=True)
class Rank:
    rank: int
    stall_pct: float


def records_of(run_dir: str) -> list[Record]:
    """The last records of a run; none where its files, which the job writes, cannot be read."""
    try:
        with open_run_folder(run_dir) as folder:
            file = folder.open(RunPaths(Path()).metrics.name)
        try:
            first = max(0, file.size_bytes - _READ_BYTES)
            tail = file.pread(_READ_BYTES, first)
        finally:
            file.close()
        lines = tail[: tail.rfind(b"\n") + 1].splitlines()[first > 0 :]
        records = [record_from_json(json.loads(line)) for line in lines]
        phases(records), ranks(records)  # what they cannot read is no record of ours
        return records
    except (NotInRun, OSError, RecursionError, *_OF_OTHER_SHAPE):
        return []


def phases(records: Sequence[Record]) -> list[PhaseShare]:
    seconds = next((r.seconds for r in reversed(records) if r.seconds), None) or {}
    whole = sum(seconds.values())
    if not whole > 0:
        return []
    shares = [PhaseShare(name, 100 * value / whole) for name, value in seconds.items()]
    return sorted(shares, key=lambda phase: -phase.share_pct)


def ranks(records: Sequence[Record]) -> list[Rank]:
    """The ranks of the last record that lists them; those of large jobs that waited longest."""
    last = next((r for r in reversed(records) if r.split == "train"), None)
    if last is None:
        return []
    found = [Rank(rank, float(pct)) for rank, pct in enumerate(last.stall_pct)]
    if not found and last.stall_summary is not None:
        found = [Rank(int(rank), float(pct)) for rank, pct in last.stall_summary["worst"]]
    return found[:MOST_RANKS]


@dataclass(frozen=True)
class File:
    path: str
    size_bytes: int


def files_of(run_dir: str) -> list[File]:
    """The files of a run that people look for first, then its logs, at most `MOST_FILES`."""
    try:
        with open_run_folder(run_dir) as folder:
            found = [File(f.name, f.size_bytes) for f in islice(folder.files(), _LOOKED_AT)]
    except (NotInRun, OSError):
        return []
    shown = [file for file in found if not any(p.startswith(".") for p in file.path.split("/"))]
    first = [file for file in shown if "/" not in file.path]
    model = [file for file in shown if file.path.startswith("model/") and file.path.count("/") == 1]
    logs = [file for file in shown if fullmatch(r"logs/[^/]+/[^/]+\.log", file.path)]
    return [*first, *model, *logs][:MOST_FILES]
