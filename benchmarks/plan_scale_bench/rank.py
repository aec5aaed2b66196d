"""`python -m benchmarks.plan_scale_bench.rank`: a process that trains the jobs it is told to.

Reads an order a line from stdin, does it, and answers in a line. Importing torch takes longer than
a short training, so one process is a rank of many trainings, one after another.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from distrain.jobs.events import Event, RankFailed, StepsDone


def main() -> None:
    """Take orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no answer
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(DOES[order.pop("do")](**order)) + "\n")
        answers.flush()
    os._exit(0)  # gloo's threads sometimes abort an orderly end


def train(assignment: str) -> dict[str, Any]:
    """Train a job as a rank does; its windows, the first included, or the error."""
    from distrain.jobs.assignment import Assignment
    from distrain.train.control.rank_setup import leave_peers
    from distrain.train.rank.process import run_rank

    windows: list[dict[str, Any]] = []
    before, cpu_s = 0, 0.0

    def report(event: Event) -> None:
        nonlocal before, cpu_s
        if isinstance(event, StepsDone):
            windows.append(
                {
                    "steps": event.step - before,
                    "seconds": dict(event.seconds),
                    "sent_bytes": event.exchange.get("sent_bytes", 0) / (event.step - before),
                    "cpu_s": time.process_time() - cpu_s,
                }
            )
            before, cpu_s = event.step, time.process_time()

    failed: RankFailed | None = run_rank(Assignment.loads(assignment), report)
    if failed is not None:
        leave_peers()
        return {"error": failed.message, "traceback": failed.traceback}
    return {"windows": windows}


def collectives(words: dict[str, Any]) -> dict[str, Any]:
    """Measure as `distrain bench` does, among ranks that are each a node of their own."""
    from datetime import timedelta

    import torch
    from torch import distributed as dist

    from distrain.diagnostics.bench.measuring.rank import Measuring

    host, port = words["store"]
    store = dist.TCPStore(host, port, is_master=False)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(words["key"], store),
        rank=words["rank"],
        world_size=len(words["hosts"]),
        timeout=timedelta(seconds=words["peer_s"]),
    )
    measuring = Measuring(words, torch.device("cpu"))
    measuring.collectives()
    dist.destroy_process_group()
    return {"measures": measuring.measures}


def load(train: str, batch_rows: int, epochs: int) -> dict[str, Any]:
    """Rows and seconds of a loader that one thread decodes for."""
    from distrain.diagnostics.bench.measuring.loading import load as run

    return {"epochs": run(train, 0, 1, batch_rows, 1, epochs, "cpu")}


def spin(start_s: float, seconds: float) -> dict[str, Any]:
    """How many products of small matrices this process computes from a moment on."""
    import torch

    torch.set_num_threads(1)
    matrix, count = torch.ones(64, 64), 0
    while time.time() < start_s:
        pass
    while time.time() < start_s + seconds:
        torch.mm(matrix, matrix)
        count += 1
    return {"count": count}


DOES: dict[str, Callable[..., dict[str, Any]]] = {
    "train": train,
    "collectives": collectives,
    "load": load,
    "spin": spin,
}


if __name__ == "__main__":
    main()
