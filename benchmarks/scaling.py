"""Measure how much faster two ranks train than one, with one thread each.

    python benchmarks/scaling.py [--quick]

Both train the MLP of the Criteo notebooks (three layers of 128, embeddings of 16) on the same
generated rows, through the same Dask cluster, at the same global batch, in turns. Rows/s are rows
over wall time from the first step to the last, with loading and without starting processes. The
machine should have two idle cores.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import psutil

from distrain.jobs.job_view import Record
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.prep import PrepRequest, prepare
from distrain.prep.synthetic.generate import SynthRequest, generate
from distrain.runs.summary import summarise
from distrain.workers.local import local_cluster

GOAL = 1.8
GLOBAL_BATCH_ROWS = 65_536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    quick = parser.parse_args().quick
    rows, rounds = (1_000_000, 3) if quick else (4_000_000, 5)
    with tempfile.TemporaryDirectory() as folder, local_cluster(2, 1, "cpu", ":0") as client:
        data = make_data(Path(folder), rows, client)
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for ranks, measured in speeds.items():
                measured.append(rows_per_s(client, data, ranks))
    print_table(speeds)
    busy_pct = psutil.cpu_percent(interval=2.0)
    ratios = [two / one for one, two in zip(speeds[1], speeds[2], strict=True)]
    ratio = statistics.median(ratios)
    print(
        json.dumps(
            {
                "benchmark": "scaling",
                "rows": rows,
                "rounds": rounds,
                "machine_busy_pct_afterwards": busy_pct,
                "rows_per_s_1_rank": round(statistics.median(speeds[1])),
                "rows_per_s_2_ranks": round(statistics.median(speeds[2])),
                "ratio": round(ratio, 3),
                "ratio_per_round": [round(r, 3) for r in ratios],
                "goal": GOAL,
                "met": ratio >= GOAL,
            }
        )
    )


def make_data(folder: Path, rows: int, client: Any) -> Path:
    generate(SynthRequest(folder / "raw", rows))
    prepare(PrepRequest((str(folder / "raw" / "*.tsv"),), folder / "data"), client)
    return folder / "data"


def rows_per_s(client: Any, data: Path, ranks: int) -> float:
    spec = parse_spec(
        {
            "name": f"ranks-{ranks}",
            "data": {"train": str(data / "train")},
            "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
            "train": {"global_batch_size": GLOBAL_BATCH_ROWS, "optimizer": {"kind": "sgd"}},
            "resources": {"num_ranks": ranks, "threads_per_rank": 1, "device": "cpu"},
        }
    )
    records: list[Record] = []
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, data.parent / job.job_id)
    view = job.watch(lambda view: records.extend(view.records))
    raise_for_state(view)
    speed = summarise(view, records).rows_per_s
    assert speed is not None
    return speed


def print_table(speeds: dict[int, list[float]]) -> None:
    print(f"{'ranks':>5}  {'median rows/s':>14}  rounds")
    for ranks, measured in speeds.items():
        each = "  ".join(f"{speed:,.0f}" for speed in measured)
        print(f"{ranks:>5}  {statistics.median(measured):>14,.0f}  {each}")


if __name__ == "__main__":
    main()
