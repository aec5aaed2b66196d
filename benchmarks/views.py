"""What does it cost a scheduler to take in its ranks' reports and to show them?

    python benchmarks/views.py [--quick]

Simulated ranks report to a real coordinator and its monitor, in this process and without a network:
64 ranks with 5 reports of steps a second for 10 minutes of simulated time, and 1,024 ranks with one
a second for as long; each also sends a heartbeat a second. Every simulated second somebody reads
all documents as JSON, the curves by their cursor, as an open page and `distrain top` do; every 15
seconds Prometheus scrapes. Counted is the processor time of this thread, which is the scheduler's
event loop, per simulated second:

take in   parsing the reports, job machine, merging their metrics: also without any view
keep      what the monitor makes of them
show      the documents as JSON, and the scrapes

Memory is what the monitor keeps, pickled, and what the process holds.
"""

import argparse
import gc
import json
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from distrain.coordinator.collector import Collector
from distrain.coordinator.machine import Machine
from distrain.coordinator.messages import Submit, Tick, WorkersChanged
from distrain.coordinator.plugin import CoordinatorPlugin
from distrain.events import (
    PHASES,
    Event,
    Heartbeat,
    RankStarted,
    StepsDone,
    TrainingStarted,
    to_json,
)
from distrain.metrics import BinaryMetrics
from distrain.monitor.observer import Monitor
from distrain.monitor.prometheus import JobsCollector
from distrain.placement import Slot
from distrain.spec import parse_spec

SIMULATED_S = 600
GOAL_PCT = 5.0
SCRAPE_EVERY_S = 15
TICKS_PER_S = 10
CASES = ((64, 5), (1024, 1))
ROWS = 256
"""Rows in a rank's report."""


class Simulation:
    """One job of simulated ranks, as a coordinator has it that nobody watches, and one with views.

    The clock is read twice per simulated second and coordinator, since reading it costs more than
    taking in a report.
    """

    def __init__(self, num_ranks: int, reports_per_s: int):
        self.num_ranks, self.reports_per_s = num_ranks, reports_per_s
        self.spent: Counter[str] = Counter()
        self.plain = coordinator_of_one_job(num_ranks)
        self.watched = coordinator_of_one_job(num_ranks)
        self.monitor = Monitor(self.watched)
        self.watched.observers = (self.monitor,)
        self.registry = CollectorRegistry()
        scraped = JobsCollector()
        scraped.monitor = self.monitor
        self.registry.register(scraped)
        self.states = [metrics_state(seed) for seed in range(16)]
        self.cursor: str | None = None
        self.step = 0
        started = [RankStarted(rank, 1 + rank, f"host-{rank}", "cpu") for rank in range(num_ranks)]
        ready = [
            TrainingStarted(rank, 10**6, 10**9, 10**9, 7, "arrow: simulated")
            for rank in range(num_ranks)
        ]
        self.tell([*started, *ready], 0)
        self.spent.clear()

    def second(self, number: int) -> None:
        """One simulated second."""
        events: list[Event] = []
        for _ in range(self.reports_per_s):
            self.step += 10
            events += [self.steps_done(rank) for rank in range(self.num_ranks)]
        events += [
            Heartbeat(rank, self.step, self.step, "exchange", "peers")
            for rank in range(self.num_ranks)
        ]
        self.tell(events, number)
        with counted(self.spent, "show"):
            self.look()
            if number % SCRAPE_EVERY_S == 0:
                generate_latest(self.registry)

    def tell(self, events: list[Event], number: int) -> None:
        """A second's reports, as they come over the wire, with the ticks between them."""
        documents = json.loads(json.dumps([to_json(event) for event in events]))
        every = max(1, len(documents) // TICKS_PER_S)
        both = [("plain", self.plain), ("watched", self.watched)]
        for name, coordinator in both if number % 2 else reversed(both):
            with counted(self.spent, name):
                for at, document in enumerate(documents):
                    coordinator.rank_reported("job", 1, document)
                    if at % every == 0:
                        coordinator._tell(Tick())

    def look(self) -> None:
        """What an open page reads."""
        metrics = self.monitor.metrics("job", self.cursor)
        assert metrics is not None
        self.cursor = metrics["cursor"]
        json.dumps([self.monitor.jobs(), self.monitor.job("job"), metrics])

    def shares_pct(self, simulated_s: int) -> dict[str, float]:
        """Of the event loop, by what it was spent on."""
        spent = self.spent
        spent_s = {
            "take in": spent["plain"],
            "keep": spent["watched"] - spent["plain"],
            "show": spent["show"],
        }
        return {name: 100 * seconds / simulated_s for name, seconds in spent_s.items()}

    def steps_done(self, rank: int) -> StepsDone:
        """A rank's report of ten steps."""
        window_s = 1.0 / self.reports_per_s
        own_s = window_s * (0.5 + 0.4 * (rank % 16) / 16)
        seconds = dict.fromkeys(PHASES, 0.0)
        seconds |= {"data_wait": own_s / 10, "forward_backward": own_s * 0.9}
        seconds["exchange"] = window_s - own_s
        state = self.states[(rank + self.step) % len(self.states)]
        loader = {"batches": 10, "rows": ROWS, "wait_s": 0.1, "queue_depth_sum": 10}
        exchange = {"steps": 10, "lookups": 26 * ROWS, "distinct": ROWS, "sent_bytes": 10**6}
        elapsed_s = self.step / 10 * window_s
        return StepsDone(rank, 0, self.step, elapsed_s, seconds, state, 0.1, loader, exchange)


@contextmanager
def counted(spent: Counter[str], name: str) -> Iterator[None]:
    start_s = time.thread_time()
    try:
        yield
    finally:
        spent[name] += time.thread_time() - start_s


def metrics_state(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    metrics = BinaryMetrics()
    metrics.update(rng.normal(size=ROWS).astype(np.float32), rng.integers(0, 2, ROWS))
    return metrics.to_json()


def coordinator_of_one_job(num_ranks: int) -> CoordinatorPlugin:
    """A coordinator without a scheduler, whose job `job` has just been launched."""
    plugin = CoordinatorPlugin()
    plugin.scheduler = SimpleNamespace(workers={})
    plugin.machine = Machine()
    plugin.specs = {"job": parse_spec(document(num_ranks))}
    plugin.run_dirs = {"job": "runs/job"}
    plugin.collectors = {"job": Collector()}
    plugin.collectors["job"].begin_attempt(1, num_ranks)
    slots = frozenset(Slot(f"host-{r}", f"tcp://{r}:1", f"w{r}") for r in range(num_ranks))
    now_s = time.monotonic()
    plugin.machine.handle(Submit("job", num_ranks, 600.0, None), now_s)
    plugin.machine.handle(WorkersChanged(slots), now_s)
    return plugin


def document(num_ranks: int) -> dict[str, Any]:
    return {
        "data": {"train": "nowhere"},
        "model": {"kind": "mlp"},
        "train": {"lanes": num_ranks, "global_batch_size": 32 * num_ranks},
        "resources": {"num_ranks": num_ranks},
    }


def measure(num_ranks: int, reports_per_s: int, simulated_s: int) -> dict[str, Any]:
    simulation = Simulation(num_ranks, reports_per_s)
    kept_bytes, held_bytes = [], []
    for number in range(simulated_s):
        simulation.second(number)
        if (number + 1) % (simulated_s // 10) == 0:
            gc.collect()
            kept_bytes.append(len(pickle.dumps(simulation.monitor.histories)))
            held_bytes.append(psutil.Process().memory_info().rss)
    view = simulation.monitor.job("job")
    assert view is not None
    assert view["step"] == simulation.step
    assert len(view["ranks"]) == num_ranks
    return {
        "num_ranks": num_ranks,
        "reports_per_s": reports_per_s,
        "simulated_s": simulated_s,
        "event_loop_pct": simulation.shares_pct(simulated_s),
        "kept_bytes": kept_bytes,
        "held_bytes": held_bytes,
    }


def told(result: dict[str, Any]) -> str:
    shares = result["event_loop_pct"]
    kept, held = result["kept_bytes"], result["held_bytes"]
    views_pct = shares["keep"] + shares["show"]
    return (
        f"{result['num_ranks']:5} ranks, {result['reports_per_s']} reports/s each, "
        f"{result['simulated_s']} s: of the event loop take in {shares['take in']:.2f} %, "
        f"keep {shares['keep']:.2f} %, show {shares['show']:.2f} %; "
        f"views together {views_pct:.2f} % (goal: < {GOAL_PCT:g} %)\n"
        f"      the monitor keeps {kept[len(kept) // 2] / 2**20:.2f} MiB half-way, "
        f"{kept[-1] / 2**20:.2f} MiB at the end, {max(kept) / 2**20:.2f} MiB at most; "
        f"the process holds {held[len(held) // 2] / 2**20:.0f}, then {held[-1] / 2**20:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 simulated seconds")
    options = parser.parse_args()
    simulated_s = 20 if options.quick else SIMULATED_S
    results = []
    for num_ranks, reports_per_s in CASES:
        results.append(measure(num_ranks, reports_per_s, simulated_s))
        print(told(results[-1]), flush=True)
    views_pct = [r["event_loop_pct"]["keep"] + r["event_loop_pct"]["show"] for r in results]
    met = all(pct < GOAL_PCT for pct in views_pct)
    print(json.dumps({"cases": results, "goal_pct": GOAL_PCT, "views_pct": views_pct, "met": met}))


if __name__ == "__main__":
    main()
