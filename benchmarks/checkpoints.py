"""What do checkpoints cost a training?

    python benchmarks/checkpoints.py [--quick]

The MLP of the Criteo notebooks (three layers of 128, embeddings of 16) with Adagrad on 2 ranks of
one thread each, global batch 8,192, without checkpoints and with one every 500 steps, in turns.
The tables have 3.4M rows, on both ranks: with Adagrad's sums a checkpoint is 0.44 GB, and each rank
writes half of it. Rows/s are of all steps but setting up, so they pay for the copies, and for the
writing that goes on beside the training.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from loader_bench.data import make_data

from distrain.cluster import local_cluster
from distrain.coordinator.handle import JobHandle, raise_for_state
from distrain.coordinator.view import Record
from distrain.report import summarise
from distrain.run_paths import new_job_id
from distrain.spec import parse_spec

GOAL_PCT = 3.0
EVERY_STEPS = 500
BATCH_ROWS = 8_192
SCALE = 0.075  # of Criteo's cardinalities
DATA_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    quick = parser.parse_args().quick
    steps, rounds = (750, 1) if quick else (1_250, 3)
    summaries: dict[bool, list[Any]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name, local_cluster(2, 1, "cpu", ":0") as client:
        folder = Path(name)
        make_data(folder, DATA_ROWS, ["prep"], SCALE)
        for _ in range(rounds):
            for saves, found in summaries.items():
                found.append(train(client, folder, steps, saves))
    report(summaries, steps)


def train(client: Any, folder: Path, steps: int, saves: bool) -> Any:
    spec = parse_spec(
        {
            "name": "checkpoints",
            "data": {"train": str(folder / "prep")},
            "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
            "train": {"global_batch_size": BATCH_ROWS, "epochs": 100, "max_steps": steps},
            "embeddings": {"placement": "replicated"},
            "checkpoint": {
                "every_steps": EVERY_STEPS if saves else None,
                "every_s": None,
                "at_end": False,
            },
            "resources": {"num_ranks": 2, "device": "cpu"},
        }
    )
    records: list[Record] = []
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, folder / "runs" / job.job_id)
    view = job.watch(lambda view: records.extend(r for r in view.records if isinstance(r, Record)))
    raise_for_state(view)
    return summarise(view, records)


def report(summaries: dict[bool, list[Any]], steps: int) -> None:
    plain, saving = summaries[False], summaries[True]
    costs = [
        100 * (1 - with_.rows_per_s / without.rows_per_s)
        for without, with_ in zip(plain, saving, strict=True)
    ]
    stood = [
        max(100 * seconds["checkpoint"] / sum(seconds.values()) for seconds in each.seconds)
        for each in saving
    ]
    cost_pct, stood_pct = statistics.median(costs), statistics.median(stood)
    for name, found in (("without", plain), ("with", saving)):
        each = "  ".join(f"{summary.rows_per_s:,.0f}" for summary in found)
        print(f"{name:>8} checkpoints: rows/s {each}")
    print(f"cost {cost_pct:.2f} %, of which training stood still {stood_pct:.2f} %")
    print(
        json.dumps(
            {
                "benchmark": "checkpoints",
                "steps": steps,
                "every_steps": EVERY_STEPS,
                "parameters": saving[0].parameters,
                "write_s": round(saving[0].checkpoints["write_s"], 2),
                "cost_pct": round(cost_pct, 2),
                "cost_pct_per_round": [round(cost, 2) for cost in costs],
                "stood_still_pct": round(stood_pct, 2),
                "goal_pct": GOAL_PCT,
                "met": cost_pct < GOAL_PCT,
            }
        )
    )


if __name__ == "__main__":
    main()
