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
    """Return the share of wall time spent waiting for data, in percent, from seconds by phase.

    >>> stall_pct({"data_wait": 1.0, "forward_backward": 3.0})
    25.0
    """
    total_s = sum(seconds.values())
    return 100.0 * seconds.get("data_wait", 0.0) / total_s if total_s > 0 else 0.0


def phase_shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each phase's share of the total wall time, in percent, from seconds by phase.

    {} if the total is 0.
    """
    total_s = sum(seconds.values())
    return {p: 100.0 * of_phase / total_s for p, of_phase in seconds.items()} if total_s > 0 else {}


_LISTED_RANKS = 64
"""The largest job whose records list each rank's share of waiting; larger jobs get a summary."""

WORST_RANKS = 8  # number of ranks in a summary, those that waited longest


def stalls_of(per_rank: Sequence[float]) -> dict[str, Any]:
    """Return the field `stall_pct` of a `Record`, given each rank's share of waiting in percent.

    For more than `_LISTED_RANKS` ranks, return the field `stall_summary` instead.

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
    """Return the field `usage` of a `Record`: lists with a value for each rank, by name.

    A list is left out if all its values are 0. Returns `None` for more than `_LISTED_RANKS` ranks.
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
    """Return the sums of several loaders' counters, and the mean queue depth of their batches.

    >>> add_up_loaders([{"batches": 2, "queue_depth_sum": 6}, {"batches": 1, "queue_depth_sum": 0}])
    {'batches': 3, 'queue_depth_sum': 6, 'mean_queue_depth': 2.0}
    """
    total = add_up(per_rank)
    if "queue_depth_sum" in total:  # a mean of the loaders' means would not be weighted by batches
        depth_sum, batches = total["queue_depth_sum"], total.get("batches", 0)
        total["mean_queue_depth"] = depth_sum / max(1, batches)
    return total


def training_s(seconds: Mapping[str, float]) -> float:
    """Return the wall time without validation, from seconds by phase; rows/s are based on it."""
    return sum(seconds.values()) - seconds.get("evaluate", 0.0)


def merge(states: Sequence[Mapping[str, Any]]) -> TargetMetrics:
    """Merge the metric states of all ranks, given in rank order as JSON values.

    Raises a `ValueError` that names the rank if a state is invalid.
    """
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
    """Return the mean of the ranks' GPU seconds by phase, for measured phases; {} on CPUs."""
    phases = [phase for phase in PHASES if any(phase in seconds for seconds in per_rank)]
    return mean_seconds(per_rank, phases)


def join_reports(reports: Sequence[StepsDone]) -> StepsDone:
    """Join one rank's successive reports, at least one, into one report.

    Times, counters and metrics are summed; other fields are those of the last report.
    """
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
_MOST_HELD = 256  # the largest number of reports that are joined


class ReportJoiner:
    """Joins one rank's step reports, so that about one report is sent per `every_s` seconds.

    If `every_s` is 0, reports are not joined. Counters of joined reports are exact sums, so only
    the records in between are lost. Each rank decides alone how many reports to join, by the time
    between its reports, but the scheduler can merge only reports of all ranks that end at the same
    step. So a rank joins N reports, where N is a power of two, and a joined report ends at a report
    whose number is a multiple of N. If ranks use different N, each joined report with the larger N
    ends at a step where one with the smaller N ends, too.

    Before any other kind of event, except `Heartbeat`, `StacksTaken`, `CheckpointSaved` and
    `RecordsTrouble`, all held reports are sent unjoined. So reports before a validation or a
    failure are never held back.
    """

    def __init__(self, every_s: float):
        self._every_s = every_s
        self._held: list[Mapping[str, Any]] = []
        self._number = 0
        self._sent_s = 0.0

    def take(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Take the rank's next event, as JSON; return the events to send now, perhaps none."""
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
    """Return the number of reports to join into one, a power of two.

    Reports are `report_s` seconds apart, and about one joined report per `every_s` seconds is
    wanted.

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
