"""Finds the bottleneck of a step (the resource that takes the most time), and the next; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from distrain.diagnostics.bench.results import Bench, Measure, Step

LOADER_RATE = "loader.all_ranks"
"""The name of the measure for the loaders of all ranks together, in rows/s."""

_COMPUTE = ("forward_backward", "optimizer")


@dataclass(frozen=True)
class StepLimit:
    resource: str  # `CPU` or `GPU`, `network`, `loader`, `copies`, `uneven ranks`
    seconds: float


@dataclass(frozen=True)
class StepLimits:
    """The time that each resource takes in a step, the longest time first."""

    ranks: int
    resources: tuple[StepLimit, ...]

    @property
    def first(self) -> StepLimit:
        return self.resources[0]

    @property
    def next(self) -> StepLimit | None:
        """The bottleneck if the first were much faster; `None` if nothing else takes time."""
        return self.resources[1] if len(self.resources) > 1 else None

    @property
    def headroom(self) -> float | None:
        """The time of the bottleneck, divided by that of the next; `None` without a next."""
        return self.first.seconds / self.next.seconds if self.next else None


def find_limits(bench: Bench) -> StepLimits | None:
    """Return the bottlenecks of the step on the most ranks; `None` without measured steps."""
    step = bench.largest_step
    if step is None:
        return None
    # Ranks wait for the slowest rank inside their exchanges. The shortest exchange of a rank is
    # network time alone. The median exchange is longer by the time spent waiting for other ranks.
    exchanges = [of_rank.get("exchange", 0.0) for of_rank in step.seconds]
    network_s = min(exchanges)
    taken = {
        "GPU" if bench.device == "cuda" else "CPU": _median_of(step, _COMPUTE),
        "network": network_s,
        "uneven ranks": median(exchanges) - network_s,
        "copies": _median_of(step, ("copy",)),
        "loader": max(_median_of(step, ("data_wait",)), _loading_s(step, bench.measures)),
    }
    limits = [StepLimit(resource, seconds) for resource, seconds in taken.items() if seconds > 0]
    if not limits:
        return None
    return StepLimits(step.ranks, tuple(sorted(limits, key=lambda limit: -limit.seconds)))


def own_seconds(of_rank: Mapping[str, float]) -> float:
    """Return a rank's time in a step without the exchange, in which it waits for other ranks."""
    return sum(seconds for phase, seconds in of_rank.items() if phase != "exchange")


def _median_of(step: Step, phases: Sequence[str]) -> float:
    return median(sum(of_rank.get(phase, 0.0) for phase in phases) for of_rank in step.seconds)


def _loading_s(step: Step, measures: Sequence[Measure]) -> float:
    """Return the loaders' seconds for a step's rows, even if they overlap with training.

    0 if loaders were not measured on this number of ranks.
    """
    place = f"{step.ranks} ranks"
    rates = [m.median for m in measures if m.name == LOADER_RATE and m.place == place]
    return step.rows / max(rates) if rates else 0.0
