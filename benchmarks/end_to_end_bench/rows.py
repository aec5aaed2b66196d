"""Draws Criteo-shaped rows with planted labels, and writes them as `distrain prep` does.

Ids follow the Zipf laws of `distrain synth` and are ranks of frequency, as prepared ids are. No
text is written or parsed in between. Each row group is a pure function of its number, so one
process per core can draw them in parallel, and no two positions hold the same row.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SEED, CLICK_RATE = 0, 0.03
FIRST_ID = 2  # missing values have id 0; id 1 is unused
GROUPS_PER_FILE = 16


@dataclass(frozen=True)
class Made:
    """The rows of a run.

    Attributes:
        folder: Holds `train`, `valid` and `schema.pbtxt`.
        rows: Training rows.
        valid_rows: Validation rows.
        table_rows: Rows of all tables together.
        bayes_auc: The AUC of the planted model on the first validation file: the highest expected
            AUC.
        size_bytes: Size of all files.
    """

    folder: Path
    rows: int
    valid_rows: int
    table_rows: int
    bayes_auc: float
    size_bytes: int


def make_rows(folder: Path, rows: int, valid_rows: int, scale: float) -> Made:
    """Draw and write the rows of both splits.

    Args:
        folder: An empty folder.
        rows: Training rows.
        valid_rows: Validation rows.
        scale: Factor on the cardinalities of long columns; 1 gives the notebooks' 45.9M rows.
    """
    schema = write_schema(folder, scale)
    work = [*files_of(folder, "train", rows), *files_of(folder, "valid", valid_rows)]
    for split in ("train", "valid"):
        (folder / split).mkdir()
    # Forking a process that has Arrow threads may hang.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        best = pool.submit(bayes_auc, next(f for f in work if f.split == "valid"), scale)
        sizes = list(pool.map(write_file, work, [scale] * len(work)))
    tables = sum(column.cardinality or 0 for column in schema.categorical)
    return Made(folder, rows, valid_rows, tables, best.result(), sum(sizes))


@dataclass(frozen=True)
class File:
    """One file to write.

    Attributes:
        path: Its path.
        split: "train" or "valid".
        first_group: The number of its first row group.
        rows: Its number of rows.
    """

    path: Path
    split: str
    first_group: int
    rows: int


def files_of(folder: Path, split: str, rows: int) -> list[File]:
    """Return the files of a split, with at most 16 row groups each."""
    from distrain.prep.synthetic.draw import CHUNK_ROWS

    full = GROUPS_PER_FILE * CHUNK_ROWS
    return [
        File(
            folder / split / f"part-{number:05d}.parquet",
            split,
            number * GROUPS_PER_FILE,
            min(full, rows - number * full),
        )
        for number in range(-(-rows // full))
    ]


def write_schema(folder: Path, scale: float) -> Any:
    """Write the schema of the rows into a folder, and return it."""
    from distrain.prep.synthetic.draw import CATEGORIES
    from distrain.schema import criteo_schema

    schema = criteo_schema({c.name: c.cardinality(scale) + FIRST_ID for c in CATEGORIES})
    schema.save(folder / "schema.pbtxt")
    return schema


def write_file(file: File, scale: float) -> int:
    """Write one file; return its size in bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from distrain.prep.synthetic.draw import CHUNK_ROWS
    from distrain.prep.synthetic.planted import PlantedModel

    pa.set_cpu_count(1)  # there is a process for each core
    model = PlantedModel.fit(SEED, scale, CLICK_RATE)
    writer = None
    for start in range(0, file.rows, CHUNK_ROWS):
        group = file.first_group + start // CHUNK_ROWS
        table = draw_group(model, file.split, group, scale)[0].slice(0, file.rows - start)
        if writer is None:
            writer = pq.ParquetWriter(
                file.path, table.schema, compression="lz4", write_page_checksum=True
            )
        writer.write_table(table, row_group_size=CHUNK_ROWS)
    if writer is not None:
        writer.close()
    return file.path.stat().st_size


def draw_group(model: Any, split: str, group: int, scale: float) -> Any:
    """Return 65,536 rows as a table without nulls, their true logits and their labels."""
    import numpy as np
    import pyarrow as pa

    from distrain.prep.synthetic.draw import draw_features
    from distrain.prep.synthetic.planted import probabilities

    features = draw_features(SEED, split, group, scale)
    logits = model.logits(features)
    labels = features.coin < probabilities(logits)
    columns = {"label": labels.astype(np.float32)}
    for name, counts in features.integers.items():
        values = np.log1p(np.maximum(counts, 0))
        columns[name] = np.where(absent(features, name), 0, values).astype(np.float32)
    for name, ids in features.ids.items():
        columns[name] = np.where(absent(features, name), 0, ids + FIRST_ID).astype(np.int32)
    table = pa.table(columns)
    required = pa.schema([field.with_nullable(False) for field in table.schema])
    return table.cast(required), logits, labels


def absent(features: Any, name: str) -> Any:
    """Return which rows have no value in a column: a boolean array, or False if all have one."""
    return features.missing.get(name, False)


def bayes_auc(file: File, scale: float) -> float:
    """Return the AUC of the planted model on the rows of a file."""
    import numpy as np

    from distrain.prep.synthetic.draw import CHUNK_ROWS
    from distrain.prep.synthetic.planted import PlantedModel, Truth

    model, truth = PlantedModel.fit(SEED, scale, CLICK_RATE), Truth()
    for start in range(0, file.rows, CHUNK_ROWS):
        group = file.first_group + start // CHUNK_ROWS
        _, logits, labels = draw_group(model, file.split, group, scale)
        count = file.rows - start
        truth.update(logits[:count], labels[:count].astype(np.int32))
    return truth.summary(()).bayes_auc
