"""Measure the time from a failure until it is noticed, its gang has ended, and training continues.

    python benchmarks/recovery.py [--quick]

Two ranks train a small MLP without end on a local cluster of this machine, with a checkpoint every
50 steps. Then, in turns: one rank is killed, one rank's process is stopped (SIGSTOP) so that only
the watchdog can detect it, and the job is cancelled. A thread polls the lifecycle of the jobs,
which runs in this process, and the processes, every 10 ms:

noticed      the lifecycle has a failure, or has begun to stop the gang
gang gone    every process of the attempt has ended
trains again the next attempt has reported its first steps
freed        after a cancel, all processes and the job have ended
"""

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec import parse_spec
from distrain.launch.job_handle import JobHandle
from distrain.prep import PrepRequest, prepare
from distrain.prep.synthetic.generate import SynthRequest, generate
from distrain.scheduler.plugin import PLUGIN_NAME
from distrain.workers.local import local_cluster

WATCHDOG_S = 5.0
GOALS_S = {
    "dead rank noticed": 1.0,
    "dead rank, gang gone": 5.0,
    "dead rank, trains again": 15.0,
    "stopped rank noticed, beyond the watchdog's limit": 2.0,
    "cancel, all freed": 5.0,
}
LOOK_S = 0.01
PATIENCE_S = 90.0


class Watched:
    """A job of a local cluster, whose coordinator runs in this process."""

    def __init__(self, client: Any, data: Path, folder: Path):
        spec = parse_spec(document(data))
        self.handle = JobHandle(client, new_job_id(spec.name))
        self.handle.submit(spec, folder / self.handle.job_id)
        self.plugin = client.cluster.scheduler.plugins[PLUGIN_NAME]
        self.job = self.plugin.lifecycle.jobs[self.handle.job_id]

    def trains(self, attempt: int, steps: int = 1) -> bool:
        """Return True if `attempt` is the current one and all ranks have reported `steps` steps."""
        return self.job.attempt == attempt and all(s.progress >= steps for s in self._ranks())

    def pids(self) -> list[int]:
        """Return the process ids of the current attempt."""
        return [status.pid for status in self._ranks() if status.pid is not None]

    def _ranks(self) -> list[Any]:
        return list(self.job.ranks.values())

    def noticed(self, attempt: int) -> bool:
        """Return whether the lifecycle has recorded a failure of the attempt."""
        return bool(self.job.failures or self.job.culprit) or self.job.attempt > attempt


def document(data: Path) -> dict[str, Any]:
    return {
        "name": "recovery",
        "data": {"train": str(data / "train")},
        "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [64, 64]},
        "train": {"global_batch_size": 1024, "epochs": 10_000, "log_every_steps": 20},
        "checkpoint": {"every_steps": 50},
        "restart": {"max_rank_failures": 1000},
        "deadlines": {"progress_s": WATCHDOG_S},
        "resources": {"num_ranks": 2, "device": "cpu"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 2 if parser.parse_args().quick else 6
    measured: dict[str, list[float]] = {name: [] for name in GOALS_S}
    with tempfile.TemporaryDirectory() as name, local_cluster(2, 1, "cpu", ":0") as client:
        folder = Path(name)
        generate(SynthRequest(folder / "raw", 100_000))
        prepare(PrepRequest((str(folder / "raw" / "*.tsv"),), folder / "data"), client)
        for _ in range(rounds):
            one_round(client, folder, measured)
    print_table(measured)
    figures = {name: statistics.median(seconds) for name, seconds in measured.items()}
    print(
        json.dumps(
            {
                "benchmark": "recovery",
                "rounds": rounds,
                "watchdog_s": WATCHDOG_S,
                "figures_s": {n: round(s, 3) for n, s in figures.items()},
                "worst_s": {n: round(max(s), 3) for n, s in measured.items()},
                "goals_s": GOALS_S,
                "met": all(figures[name] < goal for name, goal in GOALS_S.items()),
            }
        )
    )


def one_round(client: Any, folder: Path, measured: dict[str, list[float]]) -> None:
    watched = Watched(client, folder / "data", folder / "runs")
    wait_until(lambda: watched.trains(1, steps=60))  # past a checkpoint
    pids = watched.pids()
    began_s = time.perf_counter()
    os.kill(pids[1], signal.SIGKILL)
    wait_until(lambda: watched.noticed(1))
    measured["dead rank noticed"].append(time.perf_counter() - began_s)
    wait_until(lambda: not any(map(is_running, pids)))
    measured["dead rank, gang gone"].append(time.perf_counter() - began_s)
    wait_until(lambda: watched.trains(2))
    measured["dead rank, trains again"].append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    os.kill(watched.pids()[1], signal.SIGSTOP)
    wait_until(lambda: watched.noticed(2))
    late_s = time.perf_counter() - began_s - WATCHDOG_S
    measured["stopped rank noticed, beyond the watchdog's limit"].append(late_s)
    wait_until(lambda: watched.trains(3))

    pids = watched.pids()
    began_s = time.perf_counter()
    watched.handle.cancel()
    wait_until(lambda: watched.job.state.is_final and not any(map(is_running, pids)))
    measured["cancel, all freed"].append(time.perf_counter() - began_s)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_s = time.perf_counter() + PATIENCE_S
    while not condition():
        if time.perf_counter() > give_up_s:
            raise TimeoutError(f"not within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def print_table(measured: dict[str, list[float]]) -> None:
    print(f"{'':50} {'median s':>9} {'goal s':>7}  rounds")
    for name, seconds in measured.items():
        each = " ".join(f"{s:.2f}" for s in seconds)
        print(f"{name:50} {statistics.median(seconds):>9.2f} {GOALS_S[name]:>7.1f}  {each}")


if __name__ == "__main__":
    main()
