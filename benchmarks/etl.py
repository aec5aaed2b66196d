"""Does the time to count a column's values grow as its rows do?

    python benchmarks/etl.py [--quick]

A column whose values are all distinct, the worst case, in parts of 250,000 rows: one task counts
all parts, and then each piece is added up. No cluster, no other columns, one thread.

  cpu_s         processor time of the counting, and of adding up all pieces
  us_per_row    that by row; it must not grow with the parts
  files         files of counts, and how many bytes they have
  pieces        how many pieces the column was cut into

    parts  rows (M)   cpu_s  us_per_row  files     MB  pieces
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.etl import Categorify, ColumnGroup, Workflow
from distrain.etl.counting import add_up, count_values, pieces_of
from distrain.etl.fit_unit import units_of
from distrain.etl.parts import Part

PART_ROWS = 250_000
_SPREAD = 2654435761  # odd, so products modulo 2^32 are distinct


class Counting(NamedTuple):
    """What the module's docstring says, of one number of parts."""

    parts: int
    cpu_s: float
    us_per_row: float
    files: int
    mb: float
    pieces: int


def write_parts(folder: Path, num_parts: int) -> list[Part]:
    """Parquet files with a column `u`, whose values are all distinct."""
    parts = []
    for number in range(num_parts):
        path = folder / f"{number}.parquet"
        values = np.arange(number * PART_ROWS, (number + 1) * PART_ROWS) * _SPREAD % 2**32
        pq.write_table(pa.table({"u": values}), path, use_dictionary=False)
        parts.append(Part(str(path), (0,), PART_ROWS, str(path)))
    return parts


def measure(parts: list[Part], folder: Path) -> Counting:
    """Count the values of the parts, with files in `folder`."""
    operator = Categorify(freq_threshold=2)
    workflow = Workflow((ColumnGroup(("u",), (operator,)),))
    (unit,) = units_of(workflow, next(iter(workflow.fit_passes())))
    started = time.process_time()
    counted = count_values(unit, parts, str(folder / "counts"))["u"]
    pieces = pieces_of(counted.entries)
    seen = [add_up(operator, counted.files, buckets).dropped for buckets in pieces]
    cpu_s = time.process_time() - started
    rows = len(parts) * PART_ROWS
    assert sum(seen) == rows  # every value was seen once, so none is kept
    sizes = [Path(path).stat().st_size for path in counted.files]
    for path in counted.files:
        Path(path).unlink()
    us_per_row = cpu_s / rows * 1e6
    return Counting(len(parts), cpu_s, us_per_row, len(sizes), sum(sizes) / 1e6, len(pieces))


def main() -> None:
    """Measure, print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer parts; for a look")
    quick = parser.parse_args().quick
    sizes = (4, 21) if quick else (4, 21, 42, 84, 168)
    found = []
    print((__doc__ or "").rstrip().rpartition("\n")[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = write_parts(folder, sizes[-1])
        for num_parts in sizes:
            row = measure(parts[:num_parts], folder)
            found.append(row)
            print(
                f"{row.parts:9} {row.parts * PART_ROWS / 1e6:9.2f} {row.cpu_s:7.2f} "
                f"{row.us_per_row:11.2f} {row.files:6} {row.mb:6.0f} {row.pieces:7}"
            )
    print(json.dumps({"counting": [row._asdict() for row in found]}))


if __name__ == "__main__":
    main()
