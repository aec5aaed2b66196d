"""Negatives left out: which ones, how many, and never anything else."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.negative_downsampling import downsampled
from distrain.loader.partition.table import Table
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
    found = ids(downsampled(table, "label", 0.1, seed=3))
    positives = [row for row in found if row % 10 == 0]
    assert positives == list(range(0, 50_000, 10))
    expected, deviation = 4_500, (45_000 * 0.1 * 0.9) ** 0.5
    assert abs(len(found) - 5_000 - expected) < 4 * deviation
    assert found == ids(downsampled(table, "label", 0.1, seed=3))
    assert found != ids(downsampled(table, "label", 0.1, seed=4))
    # What a smaller share keeps, a larger one keeps too.
    assert set(found) < set(ids(downsampled(table, "label", 0.2, seed=3)))


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    border=st.integers(1, 118),
    seed=st.integers(0, 5),
)
def test_neither_row_groups_nor_other_files_filters_or_windows_matter(
    tmp_path_factory: pytest.TempPathFactory, sizes: tuple[int, int], border: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("downsampled")
    labels = (np.arange(120) % 3 == 0).astype(np.float32)
    one = write(folder / "one" / "b.parquet", labels, sizes[0])
    other = write(folder / "other" / "b.parquet", labels, sizes[1])

    def kept(where: str | list[str], **options: Any) -> list[int]:
        return ids(downsampled(read_footers(where, SCHEMA, **options), "label", 0.4, seed))

    found = kept(one)
    assert kept(other) == found
    before = write(folder / "a.parquet", labels, 7, 1_000)
    assert kept([before, one]) == kept(before) + found
    assert [row - 1_000 for row in kept(before)] != found
    assert kept(one, row_filter=f"id >= {border}") == [row for row in found if row >= border]
    windows = WindowsSpec(by="id", size=border + 1)
    if sizes[0] <= border:  # a row group lies in two windows at most
        assert sorted(kept(one, windows=windows)) == found


def test_files_of_one_name_in_folders_of_keys_draw_of_their_own(tmp_path: Path) -> None:
    labels = np.zeros(300, np.float32)
    paths = [write(tmp_path / f"day={n}" / "a.parquet", labels, 90) for n in (1, 2)]
    moved = write(tmp_path / "other" / "day=2" / "a.parquet", labels, 90)
    one, two, again = (
        ids(downsampled(read_footers(path, SCHEMA), "label", 0.5, 0)) for path in (*paths, moved)
    )
    assert one != two == again


def test_labels_of_folders_and_types_of_labels(tmp_path: Path) -> None:
    numbers = np.arange(2000, dtype=np.int32)
    for label in (0, 1):
        path = tmp_path / f"label={label}" / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"id": numbers + 2000 * label}), path)
    found = ids(downsampled(read_footers(str(tmp_path), SCHEMA, hive=True), "label", 0.5, 0))
    assert [row for row in found if row >= 2000] == list(range(2000, 4000))
    assert 900 < len(found) - 2000 < 1100
    labels = numbers % 2
    for kind in (np.int8, np.int64, np.float64, bool):
        path = tmp_path / kind.__name__ / "label=0" / "a.parquet"
        of_kind = read_footers(write(path, labels.astype(kind), 300), SCHEMA)
        kept = ids(downsampled(of_kind, "label", 0.5, 0))
        assert kept == sorted({*numbers[1::2].tolist(), *(set(found) & {*numbers[::2].tolist()})})


def test_nothing_left_is_refused(tmp_path: Path, wording: Wording) -> None:
    table = read_footers(write(tmp_path / "a.parquet", np.zeros(3, np.float32), 3), SCHEMA)
    wording.refused(DataError, lambda: downsampled(table, "label", 1e-9, 0))
