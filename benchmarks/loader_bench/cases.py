"""All contenders by name."""

from dataclasses import dataclass

from benchmarks.loader_bench.data import LARGE_GROUPS
from benchmarks.loader_bench.floors import copy_to_gpu, decoding, memcpy, reading
from benchmarks.loader_bench.measure import Open
from benchmarks.loader_bench.ours import ours, reopened
from benchmarks.loader_bench.peers import (
    hugging_face,
    merlin,
    torch_batched,
    torch_items,
    torch_iterable,
)

MEMCPY, ITEMS, MERLIN = "memcpy", "torch, items", "merlin"
HUGGING_FACE = "HF datasets"
COPY_TO_GPU, OURS_TO_GPU = "copy to GPU", "distrain, to GPU"
LAYOUTS = ("ordinary", "prep", "int64")
OTHER_FILES = (*LARGE_GROUPS, "files", "wide", "lists")
FULL = "distrain, ordinary, 2t, full shuffle"
CACHE, FILLING = "distrain, cache, 2t", "distrain, filling, 2t"
NOT_FILLING = "distrain, reopened, 2t"
WINDOWS = "distrain, days, 2t, windows"


@dataclass(frozen=True)
class Case:
    """A contender.

    Attributes:
        open: Opens the data, in the contender's own process.
        family: `floor`, `distrain` or `peer`.
        layout: The layout of the parquet files that it reads; None if it reads none.
        quick: Whether it also runs with `--quick`.
        floor: The case that reads the same files with the same threads and is an upper bound; None
            if there is none.
        warm_passes: Number of passes after the cold one, whose median is the rate.
    """

    open: Open
    family: str
    layout: str | None = None
    quick: bool = True
    floor: str | None = None
    warm_passes: int = 3


def floor_name(layout: str, threads: int) -> str:
    """Return the name of the case that decodes a layout (reads it, for the cache) and drops it."""
    return f"floor, {layout}, {threads}t"


def ours_name(layout: str, threads: int, shuffle: str = "chunk") -> str:
    """Return the name of a case of distrain's loader."""
    suffixes = {"chunk": "", "none": ", in order", "full": ", full shuffle"}
    return f"distrain, {layout}, {threads}t{suffixes[shuffle]}"


def all_cases() -> dict[str, Case]:
    """Return all cases, in the order of the table."""
    cases = {MEMCPY: Case(memcpy, "floor", quick=False)}
    for layout in LAYOUTS:
        for threads in (1, 2):
            quick = threads == 2
            floor = floor_name(layout, threads)
            cases[floor] = Case(decoding(layout, threads), "floor", layout, quick)
            loader = ours(layout, threads)
            cases[ours_name(layout, threads)] = Case(loader, "distrain", layout, quick, floor)
        in_order = ours(layout, 2, "none")
        cases[ours_name(layout, 2, "none")] = Case(in_order, "distrain", layout, False, floor)
    for layout in OTHER_FILES:
        floor = floor_name(layout, 2)
        cases[floor] = Case(decoding(layout, 2), "floor", layout)
        cases[ours_name(layout, 2)] = Case(ours(layout, 2), "distrain", layout, floor=floor)
    full = ours("ordinary", 2, "full")
    cases[FULL] = Case(full, "distrain", "ordinary", floor=floor_name("ordinary", 2))
    days = ours("days", 2, windows="day")
    cases[WINDOWS] = Case(days, "distrain", "days", floor=floor_name("ordinary", 2))
    floor = floor_name("cache", 2)
    cases[floor] = Case(reading("cache", 2), "floor", "cache")
    cases[CACHE] = Case(ours("ordinary", 2, cache="cache"), "distrain", "cache", floor=floor)
    # Each pass allocates fresh memory, whose cost varies between passes.
    cases[NOT_FILLING] = Case(reopened("ordinary", 2), "distrain", "ordinary", warm_passes=5)
    filling = reopened("ordinary", 2, fills=True)
    cases[FILLING] = Case(filling, "distrain", "ordinary", floor=NOT_FILLING, warm_passes=5)
    cases |= {
        "torch, iterable": Case(torch_iterable, "peer", "ordinary", quick=False),
        "torch, batched": Case(torch_batched, "peer", "ordinary", quick=False),
        ITEMS: Case(torch_items, "peer", "ordinary", warm_passes=1),
        MERLIN: Case(merlin, "peer", "ordinary"),
        HUGGING_FACE: Case(hugging_face, "peer", "ordinary"),
        COPY_TO_GPU: Case(copy_to_gpu, "floor"),
        OURS_TO_GPU: Case(
            ours("ordinary", 2, device="cuda"), "distrain", "ordinary", True, COPY_TO_GPU
        ),
    }
    return cases
