"""Measure what the reports of many ranks cost their scheduler: messages, bytes, processor time.

    python benchmarks/reports.py [--quick]

Simulated ranks train 20M rows/s together at a global batch of 65,536 rows and report every 10
steps, the default. Their reports pass through their worker's `ReportJoiner`; its output is packed
as Dask packs it, unpacked, and merged by the scheduler's collector. All reports are counted, none
is estimated. Ranks take their histograms from a few prepared ones. The cost of Dask reading sockets
is not included.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
from distributed.protocol import dumps, loads

from distrain.jobs.events import StepsDone, from_json, to_json
from distrain.jobs.spec import parse_spec
from distrain.metrics import BinaryMetrics
from distrain.runs.records.collector import Collector
from distrain.runs.records.merging import ReportJoiner

GOAL_SHARE = 0.05
RANKS = 128
ROWS_PER_S, BATCH_ROWS, STEPS = 20e6, 65_536, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 simulated seconds instead of 32")
    simulated_s = 8.0 if parser.parse_args().quick else 32.0
    every_s = default_every_s(RANKS)
    found = {name: run(s, simulated_s) for name, s in (("each", 0.0), ("joined", every_s))}
    print(f"{'':8}{'messages/s':>12}{'MB/s':>8}{'CPU share':>11}{'rows':>14}")
    for name, one in found.items():
        print(
            f"{name:8}{one['messages_per_s']:12,.0f}{one['bytes_per_s'] / 1e6:8.1f}"
            f"{one['cpu_share']:11.1%}{one['rows']:14,}"
        )
    same_rows = found["each"]["rows"] == found["joined"]["rows"]
    share = found["joined"]["cpu_share"]
    print(
        json.dumps(
            {
                "benchmark": "reports",
                "ranks": RANKS,
                "simulated_s": simulated_s,
                "every_s": every_s,
                **found,
                "goals": {"cpu_share_below": GOAL_SHARE, "same_rows": True},
                "met": same_rows and share < GOAL_SHARE,
            }
        )
    )


def default_every_s(ranks: int) -> float:
    document = {"name": "a", "data": {"train": "x"}, "model": {"kind": "mlp"}}
    return parse_spec(document | {"resources": {"num_ranks": ranks}}).log_every_s


def run(every_s: float, simulated_s: float) -> dict[str, Any]:
    """Count and time the reports of all ranks."""
    window_s = STEPS * BATCH_ROWS / ROWS_PER_S
    windows = (
        int(simulated_s / window_s / 128) * 128
    )  # a multiple, so that all joined reports are complete
    states = [state(seed) for seed in range(8)]
    joiners = [ReportJoiner(every_s) for _ in range(RANKS)]
    collector = Collector()
    collector.begin_attempt(1, RANKS)
    messages = size_bytes = 0
    cpu_s = 0.0
    for number in range(1, windows + 1):
        for rank, joiner in enumerate(joiners):
            event = report(rank, number, window_s, states[(rank + number) % len(states)])
            for one in joiner.take(event):
                frames = dumps([{"op": "distrain-event", "job_id": "a", "event": one}])
                messages, size_bytes = messages + 1, size_bytes + sum(map(len, frames))
                began_s = time.process_time()
                collector.add(from_json(loads(frames)[0]["event"]))
                cpu_s += time.process_time() - began_s
    simulated_s = windows * window_s
    return {
        "messages_per_s": messages / simulated_s,
        "bytes_per_s": size_bytes / simulated_s,
        "cpu_share": cpu_s / simulated_s,
        "rows": collector.rows_total,
    }


def state(seed: int) -> dict[str, Any]:
    """Return a rank's metrics of one window."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.5, 1.5, STEPS * BATCH_ROWS // RANKS)
    metrics = BinaryMetrics()
    metrics.update(logits, rng.random(len(logits)) < 1 / (1 + np.exp(-logits)))
    return metrics.to_json()


def report(rank: int, number: int, window_s: float, metrics: dict[str, Any]) -> dict[str, Any]:
    loader = {"batches": STEPS, "queue_depth_sum": 2 * STEPS, "rows": 5120}
    seconds = {"data_wait": 0.1 * window_s, "forward_backward": 0.9 * window_s}
    counts, memory = [STEPS] + [0] * 14, {"host_bytes": 2**30}
    done = StepsDone(
        rank, 0, STEPS * number, window_s * number, seconds, metrics, 0.1, loader, {}, {}, counts
    )
    return to_json(done) | {"memory": memory}


if __name__ == "__main__":
    main()
