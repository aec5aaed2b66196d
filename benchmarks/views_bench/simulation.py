"""Simulated ranks that report to a real coordinator, without a network."""

import gc
import json
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from distributed.protocol import dumps
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from distrain.jobs.assignment import Slot
from distrain.jobs.events import PHASES, Event, Heartbeat, RankStarted, StepsDone, TrainingStarted
from distrain.jobs.spec import parse_spec
from distrain.metrics import BinaryMetrics
from distrain.scheduler.http.prometheus import JobsCollector
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.lifecycle.messages import Submit, Tick, WorkersChanged
from distrain.scheduler.monitor import Monitor
from distrain.scheduler.plugin import CoordinatorPlugin
from distrain.scheduler.recording import Recordings

SCRAPE_EVERY_S = 15
TICKS_PER_S = 10
POLLS_PER_S = 5
SAMPLES = 10
"""Number of times that memory is measured."""


class Simulation:
    """One job of simulated ranks, reported to a coordinator without views and to one with views.

    The clock is read twice per simulated second and coordinator, since reading it costs more than
    processing a report.
    """

    def __init__(self, num_ranks: int, reports_per_s: int, rows: int):
        self.num_ranks, self.reports_per_s, self.rows = num_ranks, reports_per_s, rows
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.plain = coordinator_of_one_job(num_ranks)
        self.watched = coordinator_of_one_job(num_ranks)
        self.monitor = Monitor(self.watched)
        self.plain.keep_history = lambda *_: None  # type: ignore[method-assign]
        self.registry = CollectorRegistry()
        scraped = JobsCollector()
        scraped.monitor = self.monitor
        self.registry.register(scraped)
        self.states = [metrics_state(seed, rows) for seed in range(16)]
        self.cursor: str | None = None
        self.entries_seen = 0
        self.step = 0
        started = [RankStarted(rank, 1 + rank, f"host-{rank}", "cpu") for rank in range(num_ranks)]
        ready = [
            TrainingStarted(rank, 10**6, 10**9, 10**9, 7, "arrow: simulated")
            for rank in range(num_ranks)
        ]
        self.tell([*started, *ready], 0)
        self.spent.clear()

    def second(self, number: int) -> None:
        """Simulate one second."""
        events: list[Event] = []
        for _ in range(self.reports_per_s):
            self.step += 10
            events += [self.report(rank) for rank in range(self.num_ranks)]
        events += [
            Heartbeat(rank, self.step, self.step, "exchange", "peers")
            for rank in range(self.num_ranks)
        ]
        self.tell(events, number)
        with counted(self.spent, "show"):
            self.look()
            for _ in range(POLLS_PER_S):
                self.poll()
            if number % SCRAPE_EVERY_S == 0:
                generate_latest(self.registry)

    def report(self, rank: int) -> StepsDone:
        """Return a rank's report of its last ten steps."""
        state = self.states[(rank + self.step) % len(self.states)]
        return report_of_steps(rank, self.step, self.reports_per_s, self.rows, state)

    def tell(self, events: list[Event], number: int) -> None:
        """Deliver a second's reports, decoded from JSON, with ticks in between."""
        # Not `to_json`: its deep copies would take longer than the measured work.
        told = [{"kind": event.kind, **vars(event)} for event in events]
        documents = json.loads(json.dumps(told))
        every = max(1, len(documents) // TICKS_PER_S)
        both = [("plain", self.plain), ("watched", self.watched)]
        for name, coordinator in both if number % 2 else reversed(both):
            with counted(self.spent, name):
                for at, document in enumerate(documents):
                    coordinator.rank_reported("job", 1, document)
                    if at % every == 0:
                        coordinator.handle_stimulus(Tick())

    def look(self) -> None:
        """Read what an open page reads."""
        metrics = self.monitor.metrics("job", self.cursor)
        assert metrics is not None
        self.cursor = metrics["cursor"]
        json.dumps([self.monitor.jobs(), self.monitor.job("job"), metrics])

    def poll(self) -> None:
        """Read what `distrain train` polls for while it waits."""
        view = self.watched.view("job", self.entries_seen)
        assert view is not None
        self.entries_seen = view["next_record"]
        dumps(view)

    def shares_pct(self, simulated_s: int) -> dict[str, float]:
        """Return the shares of the event loop, in percent, by kind of work."""
        spent = self.spent
        spent_s = {
            "take in": spent["plain"],
            "keep": spent["watched"] - spent["plain"],
            "show": spent["show"],
        }
        return {name: 100 * seconds / simulated_s for name, seconds in spent_s.items()}


@contextmanager
def counted(spent: defaultdict[str, float], name: str) -> Iterator[None]:
    start_s = time.thread_time()
    try:
        yield
    finally:
        spent[name] += time.thread_time() - start_s


def report_of_steps(
    rank: int, step: int, reports_per_s: int, rows: int, state: dict[str, Any]
) -> StepsDone:
    """Return a rank's report of ten steps."""
    window_s = 1.0 / reports_per_s
    own_s = window_s * (0.5 + 0.4 * (rank % 16) / 16)
    seconds = dict.fromkeys(PHASES, 0.0)
    seconds |= {"data_wait": own_s / 10, "forward_backward": own_s * 0.9}
    seconds["exchange"] = window_s - own_s
    loader = {"batches": 10, "rows": rows, "wait_s": 0.1, "queue_depth_sum": 10}
    exchange = {"steps": 10, "lookups": 26 * rows, "distinct": rows, "sent_bytes": 10**6}
    return StepsDone(rank, 0, step, step / 10 * window_s, seconds, state, 0.1, loader, exchange)


def metrics_state(seed: int, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    metrics = BinaryMetrics()
    logits = rng.normal(-1.5, 1.2, rows).astype(np.float32)
    metrics.update(logits, rng.random(rows) < 1 / (1 + np.exp(-logits)))
    return metrics.to_json()


def coordinator_of_one_job(num_ranks: int) -> CoordinatorPlugin:
    """Return a coordinator without a scheduler, whose job `job` has just been launched."""
    plugin = CoordinatorPlugin()
    plugin.scheduler = SimpleNamespace(workers={})
    plugin.lifecycle = Lifecycle()
    plugin.recordings = Recordings(lambda worker, message: True)
    plugin.collectors, plugin.histories = {}, {}
    plugin.follow("job")
    plugin.collectors["job"].begin_attempt(1, num_ranks)
    slots = frozenset(Slot(f"host-{r}", f"tcp://{r}:1", f"w{r}") for r in range(num_ranks))
    now_s = time.monotonic()
    spec = parse_spec(document(num_ranks))
    for stimulus in (Submit("job", spec, "runs/job", 0), WorkersChanged(slots)):
        plugin.keep_history(stimulus, plugin.lifecycle.handle(stimulus, now_s))
    return plugin


def document(num_ranks: int) -> dict[str, Any]:
    return {
        "data": {"train": "nowhere"},
        "model": {"kind": "mlp"},
        "train": {"lanes": num_ranks, "global_batch_size": 32 * num_ranks},
        "resources": {"num_ranks": num_ranks},
    }


@dataclass(frozen=True)
class Simulated:
    """The results of a simulation.

    Attributes:
        num_ranks: Number of ranks.
        reports_per_s: Reports of steps that each rank sent in a simulated second.
        rows: Rows in a report.
        simulated_s: Simulated seconds.
        event_loop_pct: Shares of the event loop, in percent, by kind of work.
        kept_bytes: Pickled size of what the monitor keeps, at ten moments.
        held_bytes: Memory of the process, at the same moments.
    """

    num_ranks: int
    reports_per_s: int
    rows: int
    simulated_s: int
    event_loop_pct: dict[str, float]
    kept_bytes: list[int]
    held_bytes: list[int]

    @property
    def total_pct(self) -> float:
        """The sum of the shares."""
        return sum(self.event_loop_pct.values())

    @property
    def growth_pct(self) -> float:
        """Growth of the process in the second half, in percent of its memory at half time."""
        half = self.held_bytes[SAMPLES // 2 - 1]
        return 100 * (self.held_bytes[-1] - half) / half


def simulate(num_ranks: int, reports_per_s: int, rows: int, simulated_s: int) -> Simulated:
    """Simulate a job, and check its last step in the monitor."""
    simulation = Simulation(num_ranks, reports_per_s, rows)
    kept_bytes, held_bytes = [], []
    for number in range(simulated_s):
        simulation.second(number)
        if (number + 1) % (simulated_s // SAMPLES) == 0:
            gc.collect()
            kept = list(simulation.watched.histories.values())
            kept_bytes.append(len(pickle.dumps(kept)))
            held_bytes.append(psutil.Process().memory_info().rss)
    view = simulation.monitor.job("job")
    assert view is not None
    assert view["step"] == simulation.step
    assert view["num_ranks"] == num_ranks
    shares = simulation.shares_pct(simulated_s)
    return Simulated(num_ranks, reports_per_s, rows, simulated_s, shares, kept_bytes, held_bytes)
