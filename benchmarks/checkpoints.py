"""Measure what checkpoints cost a training.

    python benchmarks/checkpoints.py [--quick]

The MLP of the Criteo notebooks (three layers of 128, embeddings of 16) with Adagrad on 2 ranks of
one thread each, global batch 8,192, trains without checkpoints and with one every 500 steps, in
turns. The tables have 3.4M rows and are replicated on both ranks: with Adagrad's sums a checkpoint
has 0.44 GB, of which each rank writes half.

The cost of a checkpoint comes from windows of ten steps within one run: how much longer than the
median window those take that follow a checkpoint within 100 steps, relative to 500 steps. This
includes copying the state and writing it during training. The rates of whole runs with and without
checkpoints are printed too; on a shared machine they vary from run to run by more than the cost.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.loader_bench.data import make_data
from distrain.jobs.job_view import Record
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.runs.summary import summarise
from distrain.workers.local import local_cluster

GOAL_PCT = 3.0
EVERY_STEPS = 500
LASTS_STEPS = 100  # writing a checkpoint takes fewer steps than this
WINDOW_STEPS = 10
BATCH_ROWS = 8_192
SCALE = 0.075  # of Criteo's cardinalities
DATA_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    quick = parser.parse_args().quick
    steps, rounds = (750, 1) if quick else (1_250, 2)
    runs: dict[bool, list[tuple[Any, list[Record]]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name, local_cluster(2, 1, "cpu", ":0") as client:
        folder = Path(name)
        make_data(folder, DATA_ROWS, ["prep"], SCALE)
        for _ in range(rounds):
            for saves, found in runs.items():
                found.append(train(client, folder, steps, saves))
    report(runs, steps)


def train(client: Any, folder: Path, steps: int, saves: bool) -> tuple[Any, list[Record]]:
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
    return summarise(view, records), records


def cost_pct(records: list[Record]) -> float:
    """Return the cost of a checkpoint, in percent of the time of `EVERY_STEPS` steps."""
    ends = [(0, 0.0), *((record.step, record.elapsed_s) for record in records)]
    windows = [(step, s - before_s) for (_, before_s), (step, s) in itertools.pairwise(ends)]
    after = [w for w in windows if w[0] > EVERY_STEPS and 0 < w[0] % EVERY_STEPS <= LASTS_STEPS]
    other_s = statistics.median(s for step, s in windows if (step, s) not in after)
    extra_s = sum(s - other_s for _, s in after)
    count = max(step for step, _ in windows) // EVERY_STEPS
    return 100 * extra_s / (count * other_s * EVERY_STEPS / WINDOW_STEPS)


def report(runs: dict[bool, list[tuple[Any, list[Record]]]], steps: int) -> None:
    plain, saving = ([summary for summary, _ in runs[saves]] for saves in (False, True))
    costs = [cost_pct(records) for _, records in runs[True]]
    whole = [
        100 * (1 - with_.rows_per_s / without.rows_per_s)
        for without, with_ in zip(plain, saving, strict=True)
    ]
    stood = [
        max(100 * seconds["checkpoint"] / sum(seconds.values()) for seconds in each.seconds)
        for each in saving
    ]
    cost, stood_pct = statistics.median(costs), statistics.median(stood)
    for name, found in (("without", plain), ("with", saving)):
        each = "  ".join(f"{summary.rows_per_s:,.0f}" for summary in found)
        print(f"{name:>8} checkpoints: rows/s {each}")
    print(f"cost {cost:.2f} %; training stood still {stood_pct:.2f} % of the whole run")
    print(
        json.dumps(
            {
                "benchmark": "checkpoints",
                "steps": steps,
                "every_steps": EVERY_STEPS,
                "parameters": saving[0].parameters,
                "write_s": round(saving[0].checkpoints["write_s"], 2),
                "cost_pct": round(cost, 2),
                "cost_pct_per_round": [round(each, 2) for each in costs],
                "whole_runs_slower_pct": [round(each, 2) for each in whole],
                "stood_still_pct": round(stood_pct, 2),
                "goal_pct": GOAL_PCT,
                "met": cost < GOAL_PCT,
            }
        )
    )


if __name__ == "__main__":
    main()
