"""Negatives left out: which ones, how many, and never anything else."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from distrain.errors import DataError
from distrain.partition import Table, read_footers, thinned
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("id", "int32", (Tags.CATEGORICAL,), cardinality=10**6),
    )
)


def write(path: Path, labels: np.ndarray, sizes: int, first: int = 0) -> str:
    rows = {"label": labels, "id": np.arange(first, first + len(labels), dtype=np.int32)}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), path, row_group_size=sizes)
    return str(path)


def ids(table: Table) -> list[int]:
    return [
        row
        for group in table.row_groups
        for row in pq.ParquetFile(group.file)
        .read_row_group(group.index)["id"]
        .to_numpy()[group.rows_in_file]
        .tolist()
    ]


def test_a_share_of_the_negatives_and_all_others_stay(tmp_path: Path) -> None:
    labels = (np.arange(50_000) % 10 == 0).astype(np.float32)
    table = read_footers(write(tmp_path / "a.parquet", labels, 7_000), SCHEMA)
    found = ids(thinned(table, "label", 0.1, seed=3))
    positives = [row for row in found if row % 10 == 0]
    assert positives == list(range(0, 50_000, 10))
    expected, deviation = 4_500, (45_000 * 0.1 * 0.9) ** 0.5
    assert abs(len(found) - 5_000 - expected) < 4 * deviation
    assert found == ids(thinned(table, "label", 0.1, seed=3))
    assert found != ids(thinned(table, "label", 0.1, seed=4))
    # What a smaller share keeps, a larger one keeps too.
    assert set(found) < set(ids(thinned(table, "label", 0.2, seed=3)))


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    files=st.sampled_from([(1,), (1, 2), (3, 1, 2)]),
    seed=st.integers(0, 5),
)
def test_neither_files_nor_row_groups_matter_and_a_filter_comes_first(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: tuple[int, int],
    files: tuple[int, ...],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("thinned")
    labels = (np.arange(120) % 3 == 0).astype(np.float32)
    one = write(folder / "one" / "a.parquet", labels, sizes[0])
    cuts = (np.cumsum([0, *files]) * 120 // sum(files)).tolist()
    for number, (first, end) in enumerate(pairwise(cuts)):
        write(folder / "many" / f"{number}.parquet", labels[first:end], sizes[1], first)
    tables = [read_footers(where, SCHEMA) for where in (one, str(folder / "many"))]
    found = [ids(thinned(table, "label", 0.4, seed)) for table in tables]
    assert found[0] == found[1]
    rest = np.flatnonzero(np.arange(120) >= 50)
    alone = write(folder / "alone" / "a.parquet", labels[rest], sizes[0], 50)
    filtered = read_footers(str(folder / "many"), SCHEMA, row_filter="id >= 50")
    expected = thinned(read_footers(alone, SCHEMA), "label", 0.4, seed)
    assert ids(thinned(filtered, "label", 0.4, seed)) == ids(expected)


def test_labels_of_folders_and_types_of_labels(tmp_path: Path) -> None:
    numbers = np.arange(2000, dtype=np.int32)
    for label in (0, 1):
        path = tmp_path / f"label={label}" / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": numbers + 2000 * label}), path)
    found = ids(thinned(read_footers(str(tmp_path), SCHEMA, hive=True), "label", 0.5, 0))
    assert [row for row in found if row >= 2000] == list(range(2000, 4000))
    assert 900 < len(found) - 2000 < 1100
    labels = numbers % 2
    for kind in (np.int8, np.int64, np.float64, bool):
        of_kind = read_footers(
            write(tmp_path / f"{kind}.parquet", labels.astype(kind), 300), SCHEMA
        )
        kept = ids(thinned(of_kind, "label", 0.5, 0))
        assert kept == sorted({*numbers[1::2].tolist(), *(set(found) & {*numbers[::2].tolist()})})


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    table = read_footers(write(tmp_path / "a.parquet", np.zeros(3, np.float32), 3), SCHEMA)
    with pytest.raises(DataError, match="leaves no rows"):
        thinned(table, "label", 1e-9, 0)
