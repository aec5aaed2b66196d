"""Finds the bottleneck of a step (the resource that takes the most time); no I/O."""

from collections.abc import Mapping, Sequence
from statistics import median

from distrain.diagnostics.bench.results import Bench, Measure, Step

LOADER_RATE = "loader.all_ranks"
"""The name of the measure for the loaders of all ranks together, in rows/s."""

_COMPUTE = ("forward_backward", "optimizer")


def find_limits(bench: Bench) -> dict[str, float]:
    """Return the seconds that each resource takes in a training step, longest first.

    The step is that on the most ranks. The resources are `CPU` or `GPU`, `network`, `loader`,
    `copies` and `uneven ranks`; those that take no time are omitted. The time of `network` is the
    shortest exchange of any rank, and that of `uneven ranks` is by how much the median exchange is
    longer. The other times are medians over the ranks; that of `loader` is at least `_loading_s`.
    Returns {} if no step was measured.
    """
    step = bench.largest_step
    if step is None:
        return {}
    # Ranks wait for the slowest rank inside their exchanges. The shortest exchange of a rank is
    # network time alone. The median exchange is longer by the time spent waiting for other ranks.
    exchanges = [of_rank.get("exchange", 0.0) for of_rank in step.seconds]
    taken = {
        "GPU" if bench.device == "cuda" else "CPU": _median_of(step, _COMPUTE),
        "network": min(exchanges),
        "uneven ranks": median(exchanges) - min(exchanges),
        "copies": _median_of(step, ("copy",)),
        "loader": max(_median_of(step, ("data_wait",)), _loading_s(step, bench.measures)),
    }
    longest_first = sorted(taken.items(), key=lambda limit: -limit[1])
    return {resource: seconds for resource, seconds in longest_first if seconds > 0}


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
