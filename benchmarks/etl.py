"""Measure the cost of preparing Criteo-shaped text, compared with other engines.

    python benchmarks/etl.py [--quick] [--polars] [--duckdb] [--rows 1M 4M 16M]

Whole jobs: from text to training parquet with `distrain prep` on two threads of this machine, and
the same job as users of polars and DuckDB would write it (`pip install polars duckdb`). Each is its
own process; they run in turns, and the medians count. If the engines write different ids or
numbers, the benchmark ends with an error.

  cpu_s     processor time of the whole process tree
  peak_MB   peak memory of its largest process
  disk_MB   peak disk space of output and temporary files

Counting: a column whose values are all distinct, the worst case, in parts of 250,000 rows.

  us_per_row  processor time per row; it must not grow with the number of parts

The last line is JSON, with the figures, the goals, and whether they were met.
"""

import argparse
import json
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.etl_bench.counting import Counting, measure, write_parts
from benchmarks.etl_bench.text import write_text
from benchmarks.etl_bench.whole_job import Job, Sums, differences, run

ROUNDS = 3
CPU_OF_POLARS = 1.0
PEAK_MB = 1000.0
COUNTING_GROWTH = 1.5


def whole_jobs(sizes: list[int], contenders: list[str], rounds: int) -> list[Job]:
    """Return the median job of each contender at each size, measured in turns."""
    medians = []
    print("contender       rows    cpu_s   wall_s  peak_MB  disk_MB")
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "raw.tsv"
        for rows in sizes:
            write_text(text, rows)
            jobs: dict[str, list[Job]] = {contender: [] for contender in contenders}
            sums: dict[str, Sums] = {}
            for _ in range(rounds):
                for contender in contenders:
                    job, sums[contender] = run(contender, text, rows, Path(name))
                    jobs[contender].append(job)
            for contender in contenders[1:]:
                if found := differences(sums[contenders[0]], sums[contender]):
                    raise SystemExit(f"{contender} wrote other rows: {'; '.join(found)}")
            for contender, measured in jobs.items():
                medians.append(_median(contender, rows, measured))
                m = medians[-1]
                print(
                    f"{contender:9} {rows:10,} {m.cpu_s:8.2f} {m.wall_s:8.2f} "
                    f"{m.peak_mb:8.0f} {m.disk_mb:8.0f}"
                )
    return medians


def _median(contender: str, rows: int, jobs: list[Job]) -> Job:
    figures = zip(*(job[2:] for job in jobs), strict=True)
    return Job(contender, rows, *map(statistics.median, figures))


def counting(sizes: tuple[int, ...]) -> list[Counting]:
    """Count the values of one column at several sizes, given in parts."""
    found = []
    print("parts  rows (M)   cpu_s  us_per_row  files     MB  pieces")
    with tempfile.TemporaryDirectory() as name:
        parts = write_parts(Path(name), sizes[-1])
        for num_parts in sizes:
            row = measure(parts[:num_parts], Path(name))
            found.append(row)
            print(
                f"{row.parts:5} {row.parts / 4:9.2f} {row.cpu_s:7.2f} "
                f"{row.us_per_row:11.2f} {row.files:6} {row.mb:6.0f} {row.pieces:7}"
            )
    return found


def verdict(jobs: list[Job], counted: list[Counting]) -> dict[str, Any]:
    """Return the figures at the largest size, their goals, and whether all goals are met."""
    largest = {job.contender: job for job in jobs if job.rows == jobs[-1].rows}
    ours = largest["distrain"]
    figures = {
        "peak MB of a process": ours.peak_mb,
        "counting, growth of time by row": counted[-1].us_per_row / counted[0].us_per_row,
    }
    goals = {"peak MB of a process": PEAK_MB, "counting, growth of time by row": COUNTING_GROWTH}
    if "polars" in largest:
        figures["CPU of polars"] = ours.cpu_s / largest["polars"].cpu_s
        goals["CPU of polars"] = CPU_OF_POLARS
    return {
        "figures": {name: round(value, 3) for name, value in figures.items()},
        "goals, at most": goals,
        "met": all(figures[name] <= goal for name, goal in goals.items()),
    }


def main() -> None:
    """Measure, print tables, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1M rows, one round")
    parser.add_argument(
        "--polars", action="store_true", help="also measure polars' streaming engine"
    )
    parser.add_argument("--duckdb", action="store_true", help="also measure DuckDB")
    parser.add_argument("--rows", nargs="+", default=["1M", "4M", "16M"], help="rows of the jobs")
    options = parser.parse_args()
    sizes = [1_000_000] if options.quick else [_rows(text) for text in options.rows]
    others = [name for name in ("polars", "duckdb") if getattr(options, name)]
    if missing := [name for name in others if find_spec(name) is None]:
        parser.error(f"not installed: pip install {' '.join(missing)}")
    jobs = whole_jobs(sizes, ["distrain", *others], 1 if options.quick else ROUNDS)
    counted = counting((4, 21) if options.quick else (4, 21, 42, 84, 168))
    figures = {
        "jobs": [job._asdict() for job in jobs],
        "counting": [row._asdict() for row in counted],
    }
    print(json.dumps({**figures, **verdict(jobs, counted)}))


def _rows(text: str) -> int:
    return int(float(text.removesuffix("M")) * 1e6) if text.endswith("M") else int(text)


if __name__ == "__main__":
    main()
