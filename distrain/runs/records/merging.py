"""Merges the metrics of several ranks into those of the job, and joins a rank's step reports."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from distrain.jobs.events import (
    PHASES,
    CheckpointSaved,
    Heartbeat,
    RecordsTrouble,
    StacksTaken,
    StepsDone,
    from_json,
    to_json,
)
from distrain.metrics.exchange_stats import follow_up_exchanges
from distrain.metrics.targets import TargetMetrics


def stall_pct(seconds: Mapping[str, float]) -> float:
    """Return the share of wall time spent waiting for data, in percent.

    >>> stall_pct({"data_wait": 1.0, "forward_backward": 3.0})
    25.0
    """
    return phase_shares(seconds).get("data_wait", 0.0)


def phase_shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the share of wall time by phase, in percent; {} if no time has passed."""
    total_s = sum(seconds.values())
    return {p: 100.0 * of_phase / total_s for p, of_phase in seconds.items()} if total_s > 0 else {}


_LISTED_RANKS = 64
"""The largest job whose records list each rank's share of waiting; larger jobs get a summary."""

WORST_RANKS = 8  # number of ranks in a summary, those that waited longest


def stalls_of(per_rank: Sequence[float]) -> dict[str, Any]:
    """Return the fields of a `Record` on waiting for data, from each rank's share in percent.

    For more than `_LISTED_RANKS` ranks, the fields have a summary instead of each rank's share.

    >>> stalls_of((1.0, 3.0))
    {'stall_pct': (1.0, 3.0)}
    >>> stalls_of([0.0] * 99 + [50.0])["stall_summary"]["worst"][:1]
    [[99, 50.0]]
    """
    if len(per_rank) <= _LISTED_RANKS:
        return {"stall_pct": tuple(per_rank)}
    worst = sorted(range(len(per_rank)), key=lambda rank: (-per_rank[rank], rank))[:WORST_RANKS]
    return {
        "stall_summary": {
            "mean": sum(per_rank) / len(per_rank),
            "max": per_rank[worst[0]],
            "worst": [[rank, per_rank[rank]] for rank in worst],
        }
    }


def usage_of(reports: Sequence[StepsDone]) -> dict[str, list[float]] | None:
    """Return the field `usage` of a `Record` from each rank's report, without figures that are 0.

    `None` for more than `_LISTED_RANKS` ranks.
    """
    if len(reports) > _LISTED_RANKS:
        return None
    walls_s = [sum(report.seconds.values()) or math.inf for report in reports]
    gpu_s = [sum(report.device_seconds.values()) for report in reports]
    memory = [report.memory for report in reports]
    usage: dict[str, list[float]] = {
        "cpu_pct": [
            round(100 * r.cpu_s / of_s, 1) for r, of_s in zip(reports, walls_s, strict=True)
        ],
        # Spans of the window before may end in this window.
        "gpu_pct": [
            round(min(100, 100 * s / of_s), 1) for s, of_s in zip(gpu_s, walls_s, strict=True)
        ],
        "host_bytes": [held.get("host_bytes", 0) for held in memory],
        "device_bytes": [held.get("device_bytes", 0) for held in memory],
    }
    return {name: values for name, values in usage.items() if any(values)}


def add_up_loaders(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the summed counters of several loaders.

    >>> add_up_loaders([{"batches": 2, "queue_depth_sum": 6}, {"batches": 1, "queue_depth_sum": 0}])
    {'batches': 3, 'queue_depth_sum': 6, 'mean_queue_depth': 2.0}
    """
    total = add_up(per_rank)
    if "queue_depth_sum" in total:  # a mean of the loaders' means would not be weighted by batches
        depth_sum, batches = total["queue_depth_sum"], total.get("batches", 0)
        total["mean_queue_depth"] = depth_sum / max(1, batches)
    return total


def training_s(seconds: Mapping[str, float]) -> float:
    """Return the wall time without validation, as used for rows/s."""
    return sum(seconds.values()) - seconds.get("evaluate", 0.0)


def merge(states: Sequence[Mapping[str, Any]]) -> TargetMetrics:
    """Merge the metric states of all ranks; a `ValueError` names the rank with an invalid one."""
    try:
        return TargetMetrics.from_json(*states)
    except ValueError:
        for rank, state in enumerate(states):
            try:
                TargetMetrics.from_json(state)
            except ValueError as error:
                raise ValueError(f"the metrics of rank {rank}: {error}") from None
        raise


def mean_seconds(
    per_rank: Sequence[Mapping[str, float]], phases: Sequence[str]
) -> dict[str, float]:
    return {
        phase: sum(seconds.get(phase, 0.0) for seconds in per_rank) / len(per_rank)
        for phase in phases
    }


def mean_device_seconds(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean device seconds per rank, by measured phase; empty on CPUs."""
    phases = [phase for phase in PHASES if any(phase in seconds for seconds in per_rank)]
    return mean_seconds(per_rank, phases)


def join_reports(reports: Sequence[StepsDone]) -> StepsDone:
    """Join one rank's successive reports into one report with their sums."""
    if len(reports) == 1:
        return reports[0]
    return replace(
        reports[-1],
        seconds=add_up([report.seconds for report in reports]),
        metrics=merge([report.metrics for report in reports]).to_json(),
        loader=add_up_loaders([report.loader for report in reports]),
        exchange=follow_up_exchanges([report.exchange for report in reports]),
        device_seconds=add_up([report.device_seconds for report in reports]),
        step_counts=[
            sum(counts)
            for counts in zip_longest(*(report.step_counts for report in reports), fillvalue=0)
        ],
        windows=sum(report.windows for report in reports),
        cpu_s=sum(report.cpu_s for report in reports),
    )


def add_up(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


_PASSING = frozenset(
    kind.kind for kind in (Heartbeat, StacksTaken, RecordsTrouble, CheckpointSaved)
)
_MOST_HELD = 256


class ReportJoiner:
    """Joins one rank's step reports to about one in `every_s` seconds; 0 joins none.

    Counters of joined reports are exact sums, so only the records in between are lost. Each rank
    decides alone when to join, by the time between its reports, but the scheduler needs reports of
    all ranks that end at the same step. So the number of a joined report's last step report is a
    multiple of a power of two. If two ranks join different numbers of reports, every end of the
    longer joined reports is also an end of the shorter ones.

    Before any other event, except heartbeats, stacks, saved checkpoints and trouble with records,
    all reports held so far are sent unjoined. So reports before a validation or a failure are never
    held back.
    """

    def __init__(self, every_s: float):
        self._every_s = every_s
        self._held: list[Mapping[str, Any]] = []
        self._number = 0
        self._sent_s = 0.0

    def take(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Add an event, and return the events to send now; all are JSON values."""
        kind = event.get("kind")
        if kind in _PASSING or self._every_s <= 0:
            return [event]
        if kind != StepsDone.kind:
            return [*self._release(), event]
        self._held.append(event)
        self._number += 1
        mean_s = (float(event["elapsed_s"]) - self._sent_s) / len(self._held)
        if self._number % _stride(self._every_s, mean_s):
            return []
        joined = _joined(self._held)
        self._release()
        return [joined]

    def _release(self) -> list[Mapping[str, Any]]:
        held, self._held = self._held, []
        if held:
            self._sent_s = float(held[-1]["elapsed_s"])
        return held


def _stride(every_s: float, report_s: float) -> int:
    """Return the number of reports to join, a power of two, if they are `report_s` apart.

    >>> [_stride(1.0, report_s) for report_s in (2.0, 0.6, 0.3, 0.0)]
    [1, 2, 4, 256]
    """
    if report_s <= every_s / _MOST_HELD:
        return _MOST_HELD
    return max(1, int(2 ** math.ceil(math.log2(every_s / report_s))))


def _joined(held: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    events = [from_json(dict(event)) for event in held]
    reports = [event for event in events if isinstance(event, StepsDone)]
    return held[0] if len(held) == 1 else to_json(join_reports(reports))
