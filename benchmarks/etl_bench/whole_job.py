"""Runs one contender's preparation as its own process; measures it and sums up its output."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

_HERE = Path(__file__).parent
CONTENDERS = ("distrain", "polars", "duckdb")
_LOOK_S = 0.2


class Job(NamedTuple):
    """The cost of one preparation.

    Attributes:
        contender: One of `CONTENDERS`.
        rows: Rows of the text file.
        cpu_s: Processor time of the process and its children.
        wall_s: Time from start to end.
        peak_mb: Peak memory of its largest process.
        disk_mb: Peak size of output and temporary files, sampled five times a second.
    """

    contender: str
    rows: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    disk_mb: float


class Sums(NamedTuple):
    """Sums over the output that do not depend on the order of its rows."""

    rows: int
    ids: tuple[int, ...]
    numbers: tuple[float, ...]


def run(contender: str, text: Path, rows: int, out: Path) -> tuple[Job, Sums]:
    """Prepare a file, measure it, and remove the output."""
    if contender == "distrain":
        command = [sys.executable, "-m", "distrain", "--quiet", "prep", str(text), "--out"]
    else:
        command = [sys.executable, str(_HERE / f"with_{contender}.py"), str(text)]
    work = out / contender
    work.mkdir(parents=True)
    started = time.perf_counter()
    process = subprocess.Popen([*command, str(work / "out")], stdout=subprocess.DEVNULL)
    ended = threading.Event()
    sizes = [0]
    looking = threading.Thread(target=_look, args=(work, ended, sizes))
    looking.start()
    _, status, usage = os.wait4(process.pid, 0)
    ended.set()
    looking.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{contender} ended with exit code {process.returncode}")
    wall_s = time.perf_counter() - started
    cpu_s = usage.ru_utime + usage.ru_stime
    sums = _sums(work / "out")
    shutil.rmtree(work)
    return Job(contender, rows, cpu_s, wall_s, usage.ru_maxrss / 1024, max(sizes) / 1e6), sums


def _look(folder: Path, ended: threading.Event, sizes: list[int]) -> None:
    while not ended.wait(_LOOK_S):
        with contextlib.suppress(FileNotFoundError):  # a folder was renamed or removed meanwhile
            sizes.append(sum(_size(path) for path in folder.rglob("*")))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # renamed or removed meanwhile


def _sums(out: Path) -> Sums:
    files = sorted(out.rglob("part-*.parquet"))
    ids, numbers, rows = [0] * 26, [0.0] * 13, 0
    for file in files:
        opened = pq.ParquetFile(file)
        rows += opened.metadata.num_rows
        for group in range(opened.num_row_groups):
            table = opened.read_row_group(group)
            for n in range(26):
                ids[n] += pc.sum(table[f"C{n + 1}"]).as_py()
            for n in range(13):
                numbers[n] += pc.sum(table[f"I{n + 1}"].cast("double")).as_py()
    return Sums(rows, tuple(ids), tuple(numbers))


def differences(ours: Sums, theirs: Sums) -> list[str]:
    """Return how two results differ that should be equal; empty if they do not."""
    found = []
    if ours.rows != theirs.rows:
        found.append(f"rows: {ours.rows} and {theirs.rows}")
    found += [
        f"C{n + 1}: ids sum up to {a} and {b}"
        for n, (a, b) in enumerate(zip(ours.ids, theirs.ids, strict=True))
        if a != b
    ]
    found += [
        f"I{n + 1}: numbers sum up to {a} and {b}"
        for n, (a, b) in enumerate(zip(ours.numbers, theirs.numbers, strict=True))
        if abs(a - b) > 1e-6 * ours.rows
    ]
    return found
