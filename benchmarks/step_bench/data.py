"""Draws Criteo-shaped batches in advance, so that steps do not wait for a loader.

Ids follow the Zipf laws of `distrain synth`; at scale 1 the tables have the cardinalities of the
NVTabular notebooks, 45.9M rows in total. Peers run in a Python without distrain, so rows are passed
to them as .npy files. Only drawing needs distrain; nothing here needs torch.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK_ROWS = 65_536
NUM_CONTINUOUS = 13
LEAST_BATCHES = 2
MOST_BATCHES = 8


@dataclass(frozen=True)
class Rows:
    """Rows in memory, column by column.

    Attributes:
        ids: `[columns, rows]`, int32.
        continuous: `[13, rows]`, float32.
        label: `[rows]`, float32, 0.0 or 1.0.
        cardinalities: Each column's number of ids.
    """

    ids: Any
    continuous: Any
    label: Any
    cardinalities: tuple[int, ...]

    def batches(self, batch_rows: int, rank: int, num_ranks: int) -> list[slice]:
        """Return the row ranges of this rank's batches; the ranks' batches alternate."""
        count = self.num_batches(batch_rows, num_ranks)
        starts = ((number * num_ranks + rank) * batch_rows for number in range(count))
        return [slice(start, start + batch_rows) for start in starts]

    def num_batches(self, batch_rows: int, num_ranks: int) -> int:
        """Return the number of batches of each rank: 2 to 8.

        Raises:
            ValueError: There are not enough rows for two.
        """
        count = min(MOST_BATCHES, len(self.label) // (batch_rows * num_ranks))
        if count < LEAST_BATCHES:
            raise ValueError(f"{len(self.label)} rows are too few for batches of {batch_rows}")
        return count


def write_rows(folder: Path, rows: int, scale: float) -> None:
    """Draw rows with tables of `scale` and save them.

    Args:
        folder: A new folder.
        rows: Number of rows; rounded up to whole chunks of 65,536.
        scale: Factor on the cardinalities of long columns, as in `distrain synth`.
    """
    import numpy as np

    from benchmarks.loader_bench.data import FIRST_ID, draw_chunk
    from distrain.prep.synthetic.draw import CATEGORIES, INTEGERS

    num_chunks = -(-rows // CHUNK_ROWS)
    ids = np.empty((len(CATEGORIES), num_chunks * CHUNK_ROWS), np.int32)
    continuous = np.empty((len(INTEGERS), num_chunks * CHUNK_ROWS), np.float32)
    label = np.empty(num_chunks * CHUNK_ROWS, np.float32)

    def draw(chunk: int) -> None:
        part = slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
        table = draw_chunk(chunk, scale)
        for number, column in enumerate(CATEGORIES):
            ids[number, part] = table[column.name].to_numpy()
        for number, integer in enumerate(INTEGERS):
            continuous[number, part] = table[integer.name].to_numpy()
        label[part] = table["label"].to_numpy()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(draw, range(num_chunks)))
    cardinalities = [column.cardinality(scale) + FIRST_ID for column in CATEGORIES]
    save(folder, Rows(ids, continuous, label, tuple(cardinalities)))


def stretch(source: Path, folder: Path, scale: float) -> None:
    """Save the same rows for larger tables: every id is multiplied, and so spread out.

    A batch then touches equally many distinct rows in both, each equally often. In the larger
    tables these rows are farther apart, and frequent rows are no longer adjacent.

    Args:
        source: A folder of `write_rows`.
        folder: A new folder.
        scale: Scale of the new tables; not below that of `source`.
    """
    from benchmarks.loader_bench.data import FIRST_ID
    from distrain.prep.synthetic.draw import CATEGORIES

    rows = load_rows(source)
    cardinalities = tuple(column.cardinality(scale) + FIRST_ID for column in CATEGORIES)
    ids = rows.ids.astype("int64")
    for column, (small, large) in enumerate(zip(rows.cardinalities, cardinalities, strict=True)):
        ids[column] = ids[column] * large // small
    save(folder, Rows(ids.astype("int32"), rows.continuous, rows.label, cardinalities))


def save(folder: Path, rows: Rows) -> None:
    """Write the files that `load_rows` reads."""
    import numpy as np

    folder.mkdir()
    for name in ("ids", "continuous", "label"):
        np.save(folder / f"{name}.npy", getattr(rows, name))
    (folder / "cardinalities.json").write_text(json.dumps(rows.cardinalities))


def load_rows(folder: Path) -> Rows:
    """Return the rows that `write_rows` saved, memory-mapped."""
    import numpy as np

    def array(name: str) -> Any:
        return np.load(folder / f"{name}.npy", mmap_mode="c")

    cardinalities = tuple(json.loads((folder / "cardinalities.json").read_text()))
    return Rows(array("ids"), array("continuous"), array("label"), cardinalities)


def rows_of_tables(scale: float) -> int:
    """Return the number of rows of all tables together at `scale`."""
    from benchmarks.loader_bench.data import FIRST_ID
    from distrain.prep.synthetic.draw import CATEGORIES

    return sum(column.cardinality(scale) + FIRST_ID for column in CATEGORIES)
