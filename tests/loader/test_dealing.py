"""Where the rows of row groups go, against a simulation of the epoch row by row."""

import numpy as np
from wording import Wording

from distrain.errors import SpecError
from distrain.loader.filling.schedule import Load, RowAssigner, RowAssignment
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import Chunk, Piece, chunk_order, row_permutation

Place = tuple[int, int]  # step, place in the rank's batch
Row = tuple[int, int]  # row group, row in it


def written(assignment: RowAssignment, group: int) -> list[tuple[Place, Row]]:
    """What a deal says, one row at a time."""
    result: list[tuple[Place, Row]] = []
    for step, start, count in zip(
        assignment.steps, assignment.starts, assignment.counts, strict=True
    ):
        for number in range(count):
            entry = len(result)
            place = assignment.places[entry] if len(assignment.places) else number
            result.append(((int(step), int(start + place)), (group, int(assignment.rows[entry]))))
    assert len(result) == len(assignment.rows)
    return result


def test_a_chunk_of_more_row_groups_than_16_bits_count() -> None:
    sizes = [1] * 70_000
    plan = EpochPlan(70_000, 1, 100)
    (chunk,) = chunk_order(sizes, 0, 0, "full")
    load = Load(0, 0, (Piece(0, 0, 0, 70_000, 0),))
    assigner = RowAssigner(plan, range(1), chunk, load, sizes, 0, 0)
    order = row_permutation(70_000, 0, 0, 0)
    for number in (0, 4464, 65_535, 65_536, 69_999):
        place = int(np.flatnonzero(order == number)[0])
        assert written(assigner.assign(number), number) == [
            ((place // 100, place % 100), (number, 0))
        ]


def test_a_chunk_of_more_rows_than_int32_counts_is_refused(wording: Wording) -> None:
    rows = 2**31 + 1
    plan = EpochPlan(rows, 1, 100)
    load = Load(0, 0, (Piece(0, 0, 0, 100, 0),))
    wording.refused(
        SpecError,
        lambda: RowAssigner(plan, range(1), Chunk((0, 1), 0, rows), load, [rows - 5, 5], 0, 0),
    )
