"""A small table with everything a batch may hold, for other libraries' training loops."""

import re
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader import Loader
from distrain.schema import ColumnSchema, Schema, Tags

ROWS = 2_350
"""Not a multiple of any batch size that the tests use."""

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("row", "int32", (Tags.CATEGORICAL,), cardinality=ROWS),
        ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), cardinality=50),
        ColumnSchema("I1", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("I2", "float32", (Tags.CONTINUOUS,)),
    )
)
MORE = (
    ColumnSchema("bought", "float32", (Tags.TARGET,)),
    ColumnSchema("weight", "float32", ("weight",)),
    ColumnSchema("visited", "int32", (Tags.CATEGORICAL,), is_list=True, cardinality=9),
)
ALL = Schema((*SCHEMA.columns, *MORE))


def write_rows(path: Path) -> Path:
    """Rows of `ALL`: `row` numbers them, `visited` has 0 to 4 items, `weight` is 0, 1 or 2."""
    rng = np.random.default_rng(5)
    rows = np.arange(ROWS, dtype=np.int32)
    numbers = rng.standard_normal((2, ROWS)).astype(np.float32)
    columns = {
        "label": (numbers[0] + 0.5 * rng.standard_normal(ROWS) > 0).astype(np.float32),
        "row": rows,
        "C1": rng.integers(0, 50, ROWS, dtype=np.int32),
        "I1": numbers[0],
        "I2": numbers[1],
        "bought": (rows % 5 == 0).astype(np.float32),
        "weight": (rows % 3).astype(np.float32),
        "visited": pa.array(
            [[1 + i for i in range(row % 5)] for row in rows], pa.list_(pa.int32())
        ),
    }
    pq.write_table(pa.table(columns), path, row_group_size=400)
    return path


def run_example(word: str) -> dict[str, Any]:
    """Run the Python block of the page on other libraries that has a word; return its names."""
    page = Path(__file__).parents[2] / "docs" / "interop.md"
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    (example,) = [block for block in blocks if word in block]
    names: dict[str, Any] = {"__name__": "example"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries are theirs
        exec(compile(example, page.name, "exec"), names)
    return names


def loader_threads() -> list[threading.Thread]:
    """The threads of loaders that run in this process."""
    return [t for t in threading.enumerate() if t.name.startswith(("loader", "decode"))]


def epoch_of(loader: Loader, number: int) -> list[Any]:
    """The batches of an epoch."""
    with loader.epoch(number) as batches:
        return list(batches)
