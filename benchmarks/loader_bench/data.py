"""The same Criteo-shaped rows in several parquet layouts.

Ids are drawn as `distrain synth` draws them: Zipf laws, at full scale with the cardinalities of
Criteo's 1TB logs, 4 to 10,000,000. They are ranks of frequency, as prepared ids are, so no text is
written or parsed. Counts become logarithms, as in `distrain prep`.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROW_BYTES = 160  # 26 ids, 13 values and a label, 4 bytes each
NUM_FILES = 8
GROUP_ROWS = 65_536  # as `PrepRequest.row_group_rows`
LARGE_GROUPS = {"250k": 250_000, "1m": 1_000_000}
"""Rows of a row group, by layout; these layouts are otherwise like `ordinary`."""
FIRST_ID = 2  # missing values have id 0; id 1 is unused


def make_data(
    folder: Path, rows: int, layouts: Collection[str] | None = None, scale: float = 1.0
) -> None:
    """Write rows to `folder`/LAYOUT/part-*.parquet, and their schema to `folder`/schema.pbtxt.

    Args:
        folder: An existing folder.
        rows: Number of rows; each layout gets the same ones.
        layouts: Names in `WRITERS`; all if `None`.
        scale: Factor on the cardinalities of long columns, as in `SynthRequest`.
    """
    schema(scale).save(folder / "schema.pbtxt")
    chosen = {name: write for name, write in WRITERS.items() if layouts is None or name in layouts}
    for layout in chosen:
        (folder / layout).mkdir()

    def write_file(number: int) -> None:
        num_rows = rows * (number + 1) // NUM_FILES - rows * number // NUM_FILES
        table = draw_table(number, num_rows, scale)
        for layout, write in chosen.items():
            write(table, folder / layout / f"part-{number:05d}.parquet")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write_file, range(NUM_FILES)))


def make_large_groups(folder: Path) -> None:
    """Write the rows of `ordinary` to `folder`/250k and `folder`/1m, with larger row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sources = sorted((folder / "ordinary").iterdir())
    for layout, group_rows in LARGE_GROUPS.items():
        (folder / layout).mkdir()
        rest = pq.read_table(sources[0]).slice(0, 0)
        with pq.ParquetWriter(folder / layout / "part-00000.parquet", rest.schema) as writer:
            for source in sources:
                rest = pa.concat_tables([rest, pq.read_table(source)])
                whole = rest.num_rows // group_rows * group_rows
                if whole:
                    writer.write_table(rest.slice(0, whole), row_group_size=group_rows)
                    rest = rest.slice(whole)
            if rest.num_rows:
                writer.write_table(rest, row_group_size=group_rows)


def schema(scale: float) -> Any:
    """Return the schema that `distrain prep` would save."""
    from distrain.prep.synthetic.draw import CATEGORIES, INTEGERS
    from distrain.schema import ColumnSchema, Schema, Tags
    from distrain.schema.criteo import LABEL

    columns = [ColumnSchema(LABEL, "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION))]
    columns += [ColumnSchema(column.name, "float32", (Tags.CONTINUOUS,)) for column in INTEGERS]
    for column in CATEGORIES:
        cardinality = column.cardinality(scale) + FIRST_ID
        columns.append(ColumnSchema(column.name, "int32", (Tags.CATEGORICAL,), cardinality))
    return Schema(tuple(columns))


def draw_table(number: int, rows: int, scale: float) -> Any:
    """Return the rows of file `number`: label, I1 .. I13 (float32), C1 .. C26 (int32), no nulls."""
    import pyarrow as pa

    num_chunks = -(-rows // GROUP_ROWS)
    first = number * (
        num_chunks + 1
    )  # the numbers of rows may differ by one, and so the numbers of chunks
    chunks = [draw_chunk(chunk, scale) for chunk in range(first, first + num_chunks)]
    return pa.concat_tables(chunks).slice(0, rows)


def draw_chunk(chunk: int, scale: float) -> Any:
    """Return 65,536 rows."""
    import numpy as np
    import pyarrow as pa

    from distrain.prep.synthetic.draw import draw_features

    features = draw_features(0, "train", chunk, scale)
    columns = {"label": (features.coin < 0.03).astype(np.float32)}
    for name, counts in features.integers.items():
        present = np.where(features.missing.get(name, False), 0, np.maximum(counts, 0))
        columns[name] = np.log1p(present).astype(np.float32)
    for name, ids in features.ids.items():
        columns[name] = np.where(features.missing.get(name, False), 0, ids + FIRST_ID)
        columns[name] = columns[name].astype(np.int32)
    return pa.table(columns)


def write_ordinary(table: Any, path: Path) -> None:
    """Write with pyarrow's defaults: nullable, snappy, dictionaries."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, row_group_size=GROUP_ROWS)


def write_int64(table: Any, path: Path) -> None:
    """Write with pyarrow's defaults and 64-bit ids, the default of pandas and NVTabular."""
    import pyarrow as pa

    wide = [
        field.with_type(pa.int64()) if pa.types.is_integer(field.type) else field
        for field in table.schema
    ]
    write_ordinary(table.cast(pa.schema(wide)), path)


def write_prep(table: Any, path: Path) -> None:
    """Write with the settings of `distrain.prep.transforming.transform_part`.

    It does not call the ETL, which needs Dask: a machine that only trains and loads may lack it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        table.cast(pa.schema([field.with_nullable(False) for field in table.schema])),
        path,
        compression="lz4",
        use_dictionary=True,
        row_group_size=GROUP_ROWS,
        write_page_checksum=True,
    )


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "ordinary": write_ordinary,
    "prep": write_prep,
    "int64": write_int64,
}


def bytes_per_row(folder: Path, rows: int) -> dict[str, float]:
    """Return the size of each layout's files, in bytes per row."""
    return {
        layout.name: sum(file.stat().st_size for file in layout.rglob("*") if file.is_file()) / rows
        for layout in sorted(folder.iterdir())
        if layout.is_dir()
    }
