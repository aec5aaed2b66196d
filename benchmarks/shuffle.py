"""Measure how well each shuffle mixes the rows of a table, compared with a uniform permutation.

    python benchmarks/shuffle.py [--quick]

A table of 256 row groups of 2,048 rows is divided into global batches of 4,096 rows, epoch by
epoch, as the loader does it (no rows are read). The figures are about rows that are neighbours in
the files: such rows are often similar, because they come from the same minute or user. In the last
cases the files have row groups of 32,768 rows, which are read in slices of 2,048; there "row
groups" counts slices.

  distance      median distance of two neighbours in the order of training, as a share of that in a
                uniform permutation, N (1 - sqrt(1/2))
  together      how often two neighbours are in one global batch, as a multiple of a uniform
                permutation's
  row groups    the mean number of row groups from which a global batch has rows; for a uniform
                permutation: 256
  correlation   absolute rank correlation of a row's position in the epoch with its position in the
                files; below a few thousandths for a uniform permutation

Figures are means over epochs.
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import (
    Chunk,
    chunk_order,
    lane_pieces,
    row_permutation,
    sliced_order,
)
from distrain.loader.partition.slice_dealing import num_lane_groups
from distrain.loader.partition.slices import Slices
from distrain.loader.partition.table import RowGroup, Table

NUM_ROW_GROUPS = 256
ROWS_PER_GROUP = 2048
LARGE_ROWS_PER_GROUP = 32_768
BATCH_ROWS = 4096
NUM_ROWS = NUM_ROW_GROUPS * ROWS_PER_GROUP
SEED = 0
GOALS = {"chunk_24_lanes_row_groups": 24, "full_off_uniform": 0.02}


class Case(NamedTuple):
    """A way to arrange the rows of an epoch."""

    shuffle: str
    parts_per_chunk: int
    lanes: int
    group_rows: int = ROWS_PER_GROUP


class Mixing(NamedTuple):
    """The figures that the module's docstring describes, for one epoch or as a mean."""

    distance: float
    together: float
    row_groups: float
    correlation: float


CASES = [
    Case(shuffle, parts_per_chunk, lanes)
    for shuffle, all_parts in (("none", (1,)), ("chunk", (1, 4, 16)), ("full", (1,)))
    for parts_per_chunk in all_parts
    for lanes in (1, 24)
]
CASES += [
    Case("none", 1, 24, LARGE_ROWS_PER_GROUP),
    Case("chunk", 1, 24, LARGE_ROWS_PER_GROUP),
    Case("chunk", 4, 24, LARGE_ROWS_PER_GROUP),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="16 epochs instead of 64")
    epochs = 16 if parser.parse_args().quick else 64
    results = {case: mean_mixing(case, epochs) for case in CASES}
    print_table(results)
    print(json.dumps(summary(results, epochs)))


def mean_mixing(case: Case, epochs: int) -> Mixing:
    """Return a case's figures, as means over epochs."""
    plan = EpochPlan(NUM_ROWS, case.lanes, BATCH_ROWS)
    if case.shuffle == "none":
        epochs = 1  # all epochs are the same
    mixings = [mixing(trained_rows(case, plan, epoch), plan) for epoch in range(epochs)]
    return Mixing(*np.mean(mixings, axis=0).tolist())


def trained_rows(case: Case, plan: EpochPlan, epoch: int) -> NDArray[np.int64]:
    """Return the rows' positions in the files, in the order of training: `[NUM_ROWS]`."""
    num_groups = NUM_ROWS // case.group_rows
    sizes = [case.group_rows] * num_groups
    chunks = chunk_order(sizes, SEED, epoch, case.shuffle, case.parts_per_chunk)
    if case.group_rows > ROWS_PER_GROUP:
        groups = tuple(RowGroup("", number, rows) for number, rows in enumerate(sizes))
        cut = Slices(Table(groups, "").compact, large_rows=4 * ROWS_PER_GROUP)
        capacities = [plan.lane_rows_before(lane, plan.num_steps) for lane in range(plan.lanes)]
        bands = num_lane_groups(plan.lanes) if case.shuffle == "chunk" else 1
        chunks = sliced_order(chunks, cut, capacities, bands)
    line = line_of_rows(case, epoch, chunks)
    places = [
        np.arange(piece.start, piece.stop) + chunks[piece.chunk].start
        for lane in range(plan.lanes)
        for piece in lane_pieces(plan, chunks, lane)
    ]
    line = line[np.concatenate(places)]  # lane by lane, each in the lane's order
    slices = []
    for step in range(plan.num_steps):
        for lane in range(plan.lanes):
            of_lane = line[slice(*plan.lane_span(lane))]
            taken = plan.lane_rows_before(lane, step), plan.lane_rows_before(lane, step + 1)
            slices.append(of_lane[slice(*taken)])
    return np.concatenate(slices)


def line_of_rows(case: Case, epoch: int, chunks: Sequence[Chunk]) -> NDArray[np.int64]:
    """Return the rows' positions in the files, in the order of the epoch's chunks: `[NUM_ROWS]`."""
    rows_of_group = np.arange(NUM_ROWS).reshape(NUM_ROW_GROUPS, ROWS_PER_GROUP)
    line = []
    for number, chunk in enumerate(chunks):
        rows = rows_of_group[list(chunk.row_groups)].reshape(-1)
        if case.shuffle != "none":
            rows = rows[row_permutation(chunk.num_rows, SEED, epoch, number)]
        line.append(rows)
    return np.concatenate(line)


def mixing(rows: NDArray[np.int64], plan: EpochPlan) -> Mixing:
    """Return how well rows in this order are mixed.

    Args:
        rows: Their positions in the files, `[NUM_ROWS]`.
        plan: Defines which rows share a global batch.
    """
    place = np.empty(NUM_ROWS, np.int64)
    place[rows] = np.arange(NUM_ROWS)
    step = place // plan.global_batch_size
    uniform_distance = NUM_ROWS * (1 - math.sqrt(0.5))
    pairs_together = sum(math.comb(plan.rows_in_step(t), 2) for t in range(plan.num_steps))
    uniform_together = pairs_together / math.comb(NUM_ROWS, 2)
    groups_in_steps = np.unique(step * NUM_ROW_GROUPS + np.arange(NUM_ROWS) // ROWS_PER_GROUP)
    return Mixing(
        distance=float(np.median(np.abs(np.diff(place)))) / uniform_distance,
        together=float(np.mean(np.diff(step) == 0)) / uniform_together,
        row_groups=len(groups_in_steps) / plan.num_steps,
        correlation=abs(float(np.corrcoef(place, np.arange(NUM_ROWS))[0, 1])),
    )


def summary(results: dict[Case, Mixing], epochs: int) -> dict[str, Any]:
    full = [found for case, found in results.items() if case.shuffle == "full"]
    figures = {
        "chunk_24_lanes_row_groups": results[Case("chunk", 1, 24)].row_groups,
        "full_off_uniform": max(off_uniform(found) for found in full),
    }
    met = (
        figures["chunk_24_lanes_row_groups"] >= GOALS["chunk_24_lanes_row_groups"]
        and figures["full_off_uniform"] <= GOALS["full_off_uniform"]
    )
    cases = [
        {**case._asdict(), **{name: round(value, 4) for name, value in found._asdict().items()}}
        for case, found in results.items()
    ]
    return {
        "benchmark": "shuffle",
        "rows": NUM_ROWS,
        "row_groups": NUM_ROW_GROUPS,
        "batch_rows": BATCH_ROWS,
        "epochs": epochs,
        "cases": cases,
        **{name: round(value, 4) for name, value in figures.items()},
        "goals": GOALS,
        "met": met,
    }


def off_uniform(found: Mixing) -> float:
    """Return the largest difference of a figure from that of a uniform permutation."""
    return max(
        abs(found.distance - 1),
        abs(found.together - 1),
        abs(found.row_groups / NUM_ROW_GROUPS - 1),
        found.correlation,
    )


def print_table(results: dict[Case, Mixing]) -> None:
    print(
        f"{'shuffle':9}{'group rows':>10}{'parts_per_chunk':>17}{'lanes':>7}"
        f"{'distance':>10}{'together':>10}{'row groups':>12}{'correlation':>13}"
    )
    for case, found in results.items():
        parts = str(case.parts_per_chunk) if case.shuffle == "chunk" else "-"
        print(
            f"{case.shuffle:9}{case.group_rows:>10}{parts:>17}{case.lanes:>7}{found.distance:>10.3f}"
            f"{found.together:>10.2f}{found.row_groups:>12.1f}{found.correlation:>13.3f}"
        )


if __name__ == "__main__":
    main()
