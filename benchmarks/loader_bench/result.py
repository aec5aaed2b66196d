"""Turns the rounds' figures into a table, a plot, and whether the goals are met."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks.loader_bench.cases import (
    CACHE,
    COPY_TO_GPU,
    FILLING,
    FULL,
    ITEMS,
    MERLIN,
    NOT_FILLING,
    OTHER_FILES,
    OURS_TO_GPU,
    WINDOWS,
    all_cases,
    floor_name,
    ours_name,
)
from benchmarks.loader_bench.data import LARGE_GROUPS, ROW_BYTES

Rounds = dict[str, list[dict[str, float]]]
"""For each contender, the figures of each round."""

ALL_FILES = ("prep", "int64", *OTHER_FILES)  # besides `ordinary`
OURS = ours_name("ordinary", 2)
RATIOS = {
    "of_floor": (OURS, floor_name("ordinary", 2)),
    "x_merlin": (OURS, MERLIN),
    "x_torch_items": (OURS, ITEMS),
    "cache_x_merlin": (CACHE, MERLIN),
    "of_floor_cache": (CACHE, floor_name("cache", 2)),
    "filling_x_without": (FILLING, NOT_FILLING),
    "windows_x_without": (WINDOWS, OURS),
    "250k_x_64k": (ours_name("250k", 2), OURS),
    "1m_x_64k": (ours_name("1m", 2), OURS),
    "of_gpu_copy": (OURS_TO_GPU, COPY_TO_GPU),
}
RATIOS |= {
    f"of_floor_{layout}": (ours_name(layout, 2), floor_name(layout, 2)) for layout in ALL_FILES
}
AT_LEAST = {"of_floor": 1.0, "x_merlin": 6.0, "x_torch_items": 90.0}
AT_LEAST |= {"cache_x_merlin": 10.0, "of_floor_cache": 0.4}
AT_LEAST |= {f"of_floor_{layout}": 0.6 for layout in ALL_FILES}
AT_LEAST |= {
    "filling_x_without": 0.909,
    "windows_x_without": 0.98,
    "250k_x_64k": 0.8,
    "1m_x_64k": 0.8,
}
AT_LEAST |= {"full_rows_per_s": 5e6}
COLD = ("", *(f"_{layout}" for layout in LARGE_GROUPS))
AT_MOST = {f"first_batch_s{suffix}": 0.3 for suffix in COLD}
for suffix in ("", *(f"_{layout}" for layout in ALL_FILES)):
    AT_MOST |= {f"warm_first_batch_s{suffix}": 0.3, f"own_memory_mb{suffix}": 600.0}
HEADS = (
    *("rows/s", "GB/s", "cold rows/s", "CPU s/M rows"),
    *("first batch s", "warm first s", "own MB", "peak MB", "of floor"),
)
COLOURS = {"floor": "#c7c7c7", "distrain": "#3b6fb6", "peer": "#edae49"}


def summary(results: Rounds) -> dict[str, Any]:
    """Return rates, ratios and goals; `met` is also false if a figure is missing."""
    figures = {name: ratio(results, *pair) for name, pair in RATIOS.items()}
    figures["full_rows_per_s"] = median(results, FULL, "rows_per_s")
    for suffix, name in [("", OURS), *((f"_{n}", ours_name(n, 2)) for n in ALL_FILES)]:
        figures[f"first_batch_s{suffix}"] = median(results, name, "first_batch_s")
        figures[f"warm_first_batch_s{suffix}"] = median(results, name, "warm_first_batch_s")
        figures[f"own_memory_mb{suffix}"] = median(results, name, "own_mb")
    known = {name: value for name, value in figures.items() if value is not None}
    each = {name: ratios(results, *pair) for name, pair in RATIOS.items() if name in known}
    met = {name: name in known and known[name] >= goal for name, goal in AT_LEAST.items()}
    met |= {name: name in known and known[name] <= goal for name, goal in AT_MOST.items()}
    return {
        "rows_per_s": {name: round(median(results, name, "rows_per_s") or 0) for name in results},
        "of_own_floor": of_own_floor(results),
        **{name: round(value, 3) for name, value in known.items()},
        "per_round": {name: [round(value, 3) for value in values] for name, values in each.items()},
        "goals": {name: f">= {goal}" for name, goal in AT_LEAST.items()}
        | {name: f"<= {goal}" for name, goal in AT_MOST.items()},
        "missing": [name for name in met if name not in known],
        "missed": [name for name, reached in met.items() if name in known and not reached],
        "met": all(met.values()),
    }


def of_own_floor(results: Rounds) -> dict[str, float]:
    """Return each of distrain's rates, as a share of the floor with the same files and threads."""
    shares = {
        name: ratio(results, name, case.floor)
        for name, case in all_cases().items()
        if case.floor is not None
    }
    return {name: round(share, 3) for name, share in shares.items() if share is not None}


def ratio(results: Rounds, name: str, to: str) -> float | None:
    """Return the median of the rounds' ratios of rows/s; `None` if one of the two was not run."""
    each = ratios(results, name, to)
    return statistics.median(each) if each else None


def ratios(results: Rounds, name: str, to: str) -> list[float]:
    """Return each round's ratio of rows/s; empty if one of the two was not run."""
    pairs = zip(results.get(name, ()), results.get(to, ()), strict=False)
    return [one["rows_per_s"] / other["rows_per_s"] for one, other in pairs]


def median(results: Rounds, name: str, figure: str) -> float | None:
    """Return a contender's median; `None` if it was not run."""
    rounds = results.get(name, ())
    return statistics.median(each[figure] for each in rounds) if rounds else None


def print_table(results: Rounds) -> None:
    """Print a line per contender."""
    print(f"{'':34}" + "".join(f"{head:>14}" for head in HEADS))
    shares = of_own_floor(results)
    for name, rounds in results.items():
        middle = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        gb_per_s = middle["rows_per_s"] * ROW_BYTES / 1e9
        print(
            f"{name:34}{middle['rows_per_s']:>14,.0f}{gb_per_s:>14.2f}"
            f"{middle['cold_rows_per_s']:>14,.0f}{middle['cpu_s_per_m_rows']:>14.3f}{middle['first_batch_s']:>14.3f}"
            f"{middle['warm_first_batch_s']:>14.3f}{middle['own_mb']:>14,.0f}{middle['peak_mb']:>14,.0f}"
            + (f"{shares[name]:>14.2f}" if name in shares else "")
        )
    print(f"GB/s: of rows of {ROW_BYTES} bytes, their size in a batch.")


def draw(results: Rounds, path: Path) -> None:
    """Draw a bar per contender as a PNG, with a mark at its floor if it has one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = all_cases()
    names = list(reversed(results))
    rates = [(median(results, name, "rows_per_s") or 0.0) / 1e6 for name in names]
    figure = Figure(figsize=(10, 1.2 + 0.32 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.barh(names, rates, color=[COLOURS[cases[name].family] for name in names])
    # Bars of copying and reading may exceed the plot; otherwise loaders would look alike.
    loaders = [r for n, r in zip(names, rates, strict=True) if cases[n].family != "floor"]
    widest = 2.2 * max(loaders or rates)
    axes.set_xlim(0, widest)
    for place, (name, rate) in enumerate(zip(names, rates, strict=True)):
        floor = cases[name].floor
        mark = median(results, floor, "rows_per_s") if floor else None
        if mark and mark / 1e6 < widest:
            axes.plot([mark / 1e6] * 2, [place - 0.4, place + 0.4], color="#d1495b", linewidth=2)
        axes.annotate(f" {rate:.3g}", (min(rate, 0.94 * widest), place), va="center", fontsize=8)
    axes.set_xlabel("million rows/s (red: the floor of the same files and threads)")
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    figure.savefig(path, format="png", dpi=120)
