"""Figures of several ranks, merged into those of the job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from distrain.events import PHASES, StepsDone
from distrain.metrics import TargetMetrics, follow_up_exchanges


def stall_pct(seconds: Mapping[str, float]) -> float:
    """The share of wall time spent waiting for data, in percent.

    >>> stall_pct({"data_wait": 1.0, "forward_backward": 3.0})
    25.0
    """
    total_s = sum(seconds.values())
    return 100.0 * seconds.get("data_wait", 0.0) / total_s if total_s > 0 else 0.0


_LISTED_RANKS = 64
"""Up to so many ranks a record has each rank's share of waiting; above, a summary."""

WORST_RANKS = 8  # the ranks that waited most, which a summary names


def stalls_of(per_rank: Sequence[float]) -> dict[str, Any]:
    """The fields of a `Record` for the ranks' shares of waiting: of constant size.

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


def add_up_loaders(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What several loaders did together.

    >>> add_up_loaders([{"batches": 2, "queue_depth_sum": 6}, {"batches": 1, "queue_depth_sum": 0}])
    {'batches': 3, 'queue_depth_sum': 6, 'mean_queue_depth': 2.0}
    """
    total = _add_up(per_rank)
    if "queue_depth_sum" in total:  # a mean of means would not be one of batches
        depth_sum, batches = total["queue_depth_sum"], total.get("batches", 0)
        total["mean_queue_depth"] = depth_sum / max(1, batches)
    return total


def training_s(seconds: Mapping[str, float]) -> float:
    """The wall time without validation: rows/s counts rows trained."""
    return sum(seconds.values()) - seconds.get("evaluate", 0.0)


def merge(states: Sequence[Mapping[str, Any]]) -> TargetMetrics:
    """The metrics of all ranks' rows; a `ValueError` names the rank whose state cannot be read."""
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
    """The mean rank's seconds on its device, by measured phase: empty on CPUs."""
    phases = [phase for phase in PHASES if any(phase in seconds for seconds in per_rank)]
    return mean_seconds(per_rank, phases)


def join_windows(reports: Sequence[StepsDone]) -> StepsDone:
    """One rank's successive reports as one report that carries their sums."""
    if len(reports) == 1:
        return reports[0]
    return replace(
        reports[-1],
        seconds=_add_up([report.seconds for report in reports]),
        metrics=merge([report.metrics for report in reports]).to_json(),
        loader=add_up_loaders([report.loader for report in reports]),
        exchange=follow_up_exchanges([report.exchange for report in reports]),
        device_seconds=_add_up([report.device_seconds for report in reports]),
        step_counts=[
            sum(counts)
            for counts in zip_longest(*(report.step_counts for report in reports), fillvalue=0)
        ],
        windows=sum(report.windows for report in reports),
    )


def _add_up(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
