"""Measure how long training waits for data, and check that a rank's phases add up to its time.

    python benchmarks/loader_stall.py [--quick] [--rows N] [--files LAYOUT ...] [--fill-cache]

A job as `distrain train` runs it: the MLP of the Criteo notebooks (three layers of 128, embeddings
of 16, SGD) on 2 ranks with one thread each, for one epoch of generated rows. The files are those of
`distrain prep`, or the layouts of `benchmarks/loader.py` that `--files` names, one job each. The
loader has its default settings.

Ranks report their time by phase. The wall time is measured separately, in the scheduler's process:
from the event that a rank starts to train to the event that it finished. Neither includes the start
of processes. The goals include the wait for the first batch; the share after the first 10 steps is
printed too.

`--fill-cache` runs three more pairs of jobs on the first layout and compares their rows/s: one job
as above, and one that also fills an empty cache (`data.cache_dir`).
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import psutil

from benchmarks.loader_bench.data import make_data
from benchmarks.loader_bench.more_data import make_more
from distrain.jobs.events import PHASES, RankFinished, TrainingStarted
from distrain.jobs.job_view import JobView, Record
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.scheduler.http.attach import ensure_coordinator
from distrain.workers.local import local_cluster
from distrain.workers.supervisor import EVENT_OP

NUM_RANKS = 2
GLOBAL_BATCH_ROWS = 65_536
LAYOUTS = ("prep", "ordinary", "int64", "250k", "1m", "files", "wide", "lists")
SCALE = 0.01  # of Criteo's cardinalities: the default of `distrain synth`; a model of about 40 MB
FILLING_ROUNDS = 3
FILLING_GOAL = 0.909  # of the rows/s without a cache
GOALS = {"data_wait_share": 0.01, "unaccounted_share": 0.02}


class HeardEvents:
    """Records when the scheduler, which runs in this process, receives the ranks' events."""

    def __init__(self, client: Any):
        ensure_coordinator(client)
        handlers = client.cluster.scheduler.stream_handlers
        self._pass_on: Callable[..., None] = handlers[EVENT_OP]
        self._heard_s: dict[tuple[str, int], float] = {}
        handlers[EVENT_OP] = self._hear

    def _hear(self, *, event: dict[str, Any], **told: Any) -> None:
        self._heard_s[event["kind"], event["rank"]] = time.perf_counter()
        self._pass_on(event=event, **told)

    def wall_s(self, rank: int) -> float:
        """Return the seconds from a rank's start of training to its end."""
        finished_s = self._heard_s[RankFinished.kind, rank]
        return finished_s - self._heard_s[TrainingStarted.kind, rank]


def main() -> None:
    options = arguments()
    workers = local_cluster(NUM_RANKS, 1, "cpu", ":0")
    told = {}
    with tempfile.TemporaryDirectory() as folder, workers as client:
        data = Path(folder)
        make_data(data, options.rows, {"ordinary", *options.files}, SCALE)
        make_more(data, options.files)
        heard = HeardEvents(client)
        for layout in options.files:
            view, records = train(client, data, layout)
            walls_s = [heard.wall_s(rank) for rank in range(NUM_RANKS)]
            print_table(layout, view, walls_s)
            told[layout] = summary(view, walls_s, options.rows)
            told[layout]["data_wait_share_after_first_report"] = later_wait_share(records)
        shares = filling_shares(client, data, options.files[0], heard) if options.fill_cache else []
    busy_pct = psutil.cpu_percent(interval=2.0)
    about = {
        "benchmark": "loader_stall",
        "rows": options.rows,
        "machine_busy_pct_afterwards": busy_pct,
    }
    print(json.dumps(about | overall(told, shares)))


def filling_shares(client: Any, data: Path, layout: str, heard: HeardEvents) -> list[float]:
    """Return each pair's rows/s with a cache to fill, as a share of those without."""
    shares = []
    for number in range(FILLING_ROUNDS):
        walls_s = []
        for cache in (None, data / f"cache-{number}"):
            train(client, data, layout, cache)
            walls_s.append(max(heard.wall_s(rank) for rank in range(NUM_RANKS)))
        shares.append(walls_s[0] / walls_s[1])
    each = ", ".join(f"{share:.3f}" for share in shares)
    print(f"rows/s while a cache is filled, of those without: {each}")
    return shares


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--rows", type=int, help="rows of each layout")
    parser.add_argument("--files", nargs="+", choices=LAYOUTS, default=["prep"], help="layouts")
    parser.add_argument(
        "--fill-cache", action="store_true", help="also compare jobs that fill a cache"
    )
    options = parser.parse_args()
    options.rows = options.rows or (2_000_000 if options.quick else 16_000_000)
    return options


def train(
    client: Any, data: Path, layout: str, cache: Path | None = None
) -> tuple[JobView, list[Record]]:
    """Run the job to its end, with its run folder in the data's folder."""
    schema = "schema-lists.pbtxt" if layout == "lists" else "schema.pbtxt"
    spec = parse_spec(
        {
            "name": f"stall-{layout}",
            "data": {
                "train": str(data / layout),
                "schema": str(data / schema),
                "cache_dir": str(cache) if cache else None,
            },
            "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
            "train": {"global_batch_size": GLOBAL_BATCH_ROWS, "optimizer": {"kind": "sgd"}},
            "resources": {"num_ranks": NUM_RANKS, "threads_per_rank": 1, "device": "cpu"},
        }
    )
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, data / job.job_id)
    records: list[Record] = []
    view = job.watch(lambda view: records.extend(view.records))
    raise_for_state(view)
    return view, records


def later_wait_share(records: list[Record]) -> float | None:
    """Return the share of time that ranks wait for data after the first report.

    `None` if there was only one report.
    """
    later = [record.seconds for record in records[1:] if record.seconds]
    total_s = sum(sum(seconds.values()) for seconds in later)
    if not total_s:
        return None
    return round(sum(seconds["data_wait"] for seconds in later) / total_s, 5)


def summary(view: JobView, walls_s: list[float], rows: int) -> dict[str, Any]:
    """Return each rank's shares, and the worst of them."""
    waits = [seconds["data_wait"] / sum(seconds.values()) for seconds in view.rank_seconds]
    gaps = [
        abs(sum(seconds.values()) - wall_s) / wall_s
        for seconds, wall_s in zip(view.rank_seconds, walls_s, strict=True)
    ]
    return {
        "wall_s": [round(wall_s, 3) for wall_s in walls_s],
        "rows_per_s": round(rows / max(walls_s)),
        "data_wait_share_per_rank": [round(share, 5) for share in waits],
        "unaccounted_share_per_rank": [round(share, 5) for share in gaps],
        "data_wait_share": round(max(waits), 5),
        "unaccounted_share": round(max(gaps), 5),
    }


def overall(told: dict[str, dict[str, Any]], filling: list[float]) -> dict[str, Any]:
    """Return the figures of all layouts, the worst of them, and whether they meet the goals."""
    worst = {name: max(one[name] for one in told.values()) for name in GOALS}
    goals = {name: f"< {goal}" for name, goal in GOALS.items()}
    met = all(worst[name] < goal for name, goal in GOALS.items())
    figures: dict[str, Any] = {"files": told, **worst}
    if filling:
        share = statistics.median(filling)
        figures |= {"filling_x_without": round(share, 3)}
        figures |= {"filling_x_without_per_round": [round(each, 3) for each in filling]}
        goals["filling_x_without"] = f">= {FILLING_GOAL}"
        met = met and share >= FILLING_GOAL
    return {**figures, "goals": goals, "met": met}


def print_table(layout: str, view: JobView, walls_s: list[float]) -> None:
    """Print a line per phase, with a column per rank."""
    ranks = range(view.num_ranks)
    print(f"{layout + ', seconds':20}" + "".join(f"{f'rank {rank}':>10}" for rank in ranks))
    for phase in PHASES:
        spent = [view.rank_seconds[rank].get(phase, 0.0) for rank in ranks]
        print(f"{phase:20}" + "".join(f"{seconds:>10.3f}" for seconds in spent))
    sums = [sum(seconds.values()) for seconds in view.rank_seconds]
    for name, row in (("sum of phases", sums), ("wall, by the events", walls_s)):
        print(f"{name:20}" + "".join(f"{seconds:>10.3f}" for seconds in row))


if __name__ == "__main__":
    main()
