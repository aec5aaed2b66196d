"""A soak: the same measures round after round, for as long as asked, to see what changes."""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from distrain.bench.document import Bench, Measure, Series, Step
from distrain.bench.limits import own_seconds
from distrain.bench.measuring import (
    Sizes,
    measure_collectives,
    measure_host_memory,
    measure_step_of_all,
    measure_storage,
    read_hardware,
    take_inventory,
    write_rows,
)
from distrain.bench.run import device_of, left_out
from distrain.version import build

_ROUND_REPEATS = 3
_MESSAGE_S = 8.0
"""A larger message is left out of the rounds where its repetitions would take longer."""


@dataclass(frozen=True)
class Round:
    """What one round found.

    Attributes:
        at_s: When it began, in seconds from the soak's start.
        measures: Of the cluster, and readings of its hardware.
        step: On all ranks.
    """

    at_s: float
    measures: tuple[Measure, ...]
    step: Step


def run_soak(
    client: Any,
    folder: Path,
    sizes: Sizes,
    soak_s: float,
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Measure a cluster's workers round after round; a round that began in time is finished.

    Rounds measure memory, storage, collectives and links at their largest size, and a step on all
    ranks, and read temperatures and clocks while the hosts are warm from it.

    Args:
        folder: An empty folder that all workers see; what is left in it may be removed.
        soak_s: For how long; there is one round at least.

    Raises:
        DistrainError: Something could not be measured.
    """
    say("inventory")
    inventory = take_inventory(client)
    device = device_of(inventory, device)
    say("generating rows")
    most_rows = 8 * sizes.rank_rows * sum(host["workers"] for host in inventory)
    data = write_rows(client, folder, max(sizes.data_rows, most_rows), sizes.data_scale)
    budget_s = min(sizes.message_budget_s, _MESSAGE_S)
    each = replace(sizes, repeats=_ROUND_REPEATS, message_budget_s=budget_s)
    rounds: list[Round] = []
    began_s = time.monotonic()
    while not rounds or time.monotonic() - began_s < soak_s:
        at_s = time.monotonic() - began_s
        say(f"round {len(rounds) + 1}, after {at_s / 60:.1f} of {soak_s / 60:.1f} minutes")
        rounds.append(_measure_round(client, data, folder / "round", each, device, at_s))
    return merge_rounds(
        rounds,
        Bench(
            mode="soak",
            device=device,
            inventory=inventory,
            left_out=("loaders, and steps on fewer ranks than all", *left_out(inventory, device)),
            made={"distrain": build(), "soak_s": time.monotonic() - began_s},
        ),
    )


def _measure_round(
    client: Any, data: Path, folder: Path, sizes: Sizes, device: str, at_s: float
) -> Round:
    folder.mkdir()
    measures = measure_host_memory(client, sizes.memory_bytes, sizes.repeats)
    measures += measure_storage(client, folder, sizes.file_bytes, sizes.repeats)
    measures += largest_sizes(measure_collectives(client, sizes, device))
    step = measure_step_of_all(client, data, folder, sizes, device)
    measures += read_hardware(client)
    shutil.rmtree(folder)
    return Round(at_s, tuple(measures), step)


def largest_sizes(measures: Sequence[Measure]) -> list[Measure]:
    """Of each name and place the largest size."""
    by_size = sorted(measures, key=lambda measure: measure.size_bytes)
    return list({(measure.name, measure.place): measure for measure in by_size}.values())


def merge_rounds(rounds: Sequence[Round], bench: Bench) -> Bench:
    """Put all rounds into a bench: their repetitions as one, and the medians of each as series."""
    found: dict[tuple[str, str, str, int], list[tuple[float, Measure]]] = defaultdict(list)
    for one in rounds:
        for measure in (*one.measures, *_of_step(one.step)):
            key = (measure.name, measure.place, measure.unit, measure.size_bytes)
            found[key].append((one.at_s, measure))
    series = [
        Series(
            name,
            place,
            unit,
            tuple(at_s for at_s, _ in taken),
            tuple(measure.median for _, measure in taken),
            size,
        )
        for (name, place, unit, size), taken in found.items()
    ]
    measures = [
        replace(taken[0][1], values=tuple(v for _, measure in taken for v in measure.values))
        for (name, _, _, _), taken in found.items()
        if not name.startswith("step")
    ]
    return replace(bench, measures=tuple(measures), steps=(_step_of(rounds),), series=tuple(series))


def _of_step(step: Step) -> list[Measure]:
    """Its rows/s, and what each rank worked in it without its waits for others."""
    rows = Measure("step", f"{step.ranks} ranks", "rows/s", step.rows_per_s)
    own = [own_seconds(of_rank) for of_rank in step.seconds]
    return [
        rows,
        *(Measure("step.own", f"rank {rank}", "s", (s,)) for rank, s in enumerate(own) if s > 0),
    ]


def _step_of(rounds: Sequence[Round]) -> Step:
    steps = [one.step for one in rounds]
    ranks = range(steps[0].ranks)
    return replace(
        steps[0],
        rows_per_s=tuple(rate for step in steps for rate in step.rows_per_s),
        seconds=tuple(
            {
                phase: median(step.seconds[rank].get(phase, 0.0) for step in steps)
                for phase in steps[0].seconds[rank]
            }
            for rank in ranks
        ),
    )
