"""Measures whether the time to count a column's values grows linearly with its rows.

The values of the column are all distinct, the worst case, in parts of 250,000 rows. One task counts
the values of all parts, and writes the counts to files. Then they are added up piece by piece; a
piece has a share of the values, of all parts. No cluster, no other columns, one thread.
"""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.prep import Categorify, ColumnGroup, Workflow
from distrain.prep.counting.spilled import pieces_of, read_counts, spill_counts
from distrain.prep.fit_task import units_of
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.counts import added_up
from distrain.prep.parts import Part

PART_ROWS = 250_000
_SPREAD = 2654435761  # odd, so products modulo 2^32 are distinct


class Counting(NamedTuple):
    """The measurement with one number of parts.

    Attributes:
        parts: The number of parts.
        cpu_s: Processor time of counting, and of adding up all pieces.
        us_per_row: Processor time per row, in microseconds.
        files: Number of files of counts.
        mb: Their total size in MB.
        pieces: Number of pieces into which the column was split.
    """

    parts: int
    cpu_s: float
    us_per_row: float
    files: int
    mb: float
    pieces: int


def write_parts(folder: Path, num_parts: int) -> list[Part]:
    """Write parquet files with a column `u`, whose values are all distinct."""
    parts = []
    for number in range(num_parts):
        path = folder / f"{number}.parquet"
        values = np.arange(number * PART_ROWS, (number + 1) * PART_ROWS) * _SPREAD % 2**32
        pq.write_table(pa.table({"u": values}), path, use_dictionary=False)
        parts.append(Part(str(path), (0,), PART_ROWS, str(path)))
    return parts


def measure(parts: list[Part], folder: Path) -> Counting:
    """Count the values of the parts, with temporary files in `folder`."""
    operator = Categorify(freq_threshold=2)
    workflow = Workflow((ColumnGroup(("u",), (operator,)),))
    (unit,) = units_of(workflow, next(iter(workflow.fit_passes())))
    started = time.process_time()
    memory = MemoryPlan()
    counted = spill_counts(unit, parts, str(folder / "counts"), memory.held_bytes)["u"]
    pieces = pieces_of(counted.size_bytes, memory.piece_bytes)
    kept = observed = 0
    for buckets in pieces:
        counts = added_up(read_counts(counted.files, buckets)).counts.to_numpy()
        kept += int((counts >= operator.freq_threshold).sum())
        observed += int(counts.sum())
    cpu_s = time.process_time() - started
    rows = len(parts) * PART_ROWS
    assert observed == rows
    assert not kept  # every value was seen once
    sizes = [Path(path).stat().st_size for path in counted.files]
    for path in counted.files:
        Path(path).unlink()
    us_per_row = cpu_s / rows * 1e6
    return Counting(len(parts), cpu_s, us_per_row, len(sizes), sum(sizes) / 1e6, len(pieces))
