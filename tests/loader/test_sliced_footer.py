"""Footers of which little is kept: the same rows are read, and memory stays as files get more."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from same_batches import assert_same

from distrain.loader import Dataset, Loader
from distrain.loader.parquet_pages.leaves import BUILT
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.table import Table
from distrain.loader.reading import sliced_footer as footers
from distrain.loader.reading.sliced_footer import SlicedFooter, slice_footer
from distrain.schema import ColumnSchema, Schema, Tags

ROWS = 400
pytestmark = pytest.mark.skipif(not BUILT, reason="distrain was built without a compiler")


@pytest.fixture(autouse=True)
def all_footers_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "LONG_BYTES", 0)


def sliced_of(path: Path) -> SlicedFooter | None:
    footer = pq.read_metadata(path)
    content = path.read_bytes()
    start = len(content) - 8 - footer.serialized_size
    return slice_footer(footer, content[start:-8], start)


def table_of(num_columns: int) -> pa.Table:
    rng = np.random.default_rng(num_columns)
    columns: dict[str, Any] = {
        f"C{n}": rng.integers(0, 2**31, ROWS, np.int32) for n in range(num_columns - 5)
    }
    columns["text"] = [f"text {n}" for n in range(ROWS)]
    columns["tags"] = pa.array([[n, n + 1] for n in range(ROWS)], pa.list_(pa.int64()))
    columns["days"] = pa.array([86_400_000 * n for n in range(ROWS)], pa.date64())
    columns["null"] = pa.array([None if n % 3 else float(n) for n in range(ROWS)])
    columns["true"] = [n % 2 == 0 for n in range(ROWS)]
    return pa.table(columns)


@pytest.mark.parametrize("num_columns", [6, 15, 200])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "write_page_index": True, "write_page_checksum": True},
        {"write_statistics": False, "use_dictionary": False, "version": "1.0"},
        {"store_schema": False},
    ],
    ids=["plain", "page index", "no statistics", "no keys"],
)
@pytest.mark.parametrize("group_rows", [7, 200])
def test_each_slice_is_the_footer_of_its_row_group(
    tmp_path: Path, num_columns: int, options: dict[str, Any], group_rows: int
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(num_columns), path, row_group_size=group_rows, **options)
    whole = pq.read_metadata(path)
    sliced, content = sliced_of(path), path.read_bytes()
    assert sliced is not None
    for index in range(whole.num_row_groups):
        begin, end = sliced.span(index)
        footer = sliced.footer_of(content[begin:end])
        assert footer.num_row_groups == 1
        assert footer.row_group(0).equals(whole.row_group(index))
        assert footer.schema.equals(whole.schema)
        assert footer.metadata == whole.metadata
    with pq.ParquetFile(path, metadata=footer) as last, pq.ParquetFile(path) as file:
        assert last.schema_arrow == file.schema_arrow
        assert last.read_row_group(0).equals(file.read_row_group(whole.num_row_groups - 1))


def test_what_need_not_or_cannot_be_sliced_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(8), path, row_group_size=ROWS)
    assert sliced_of(path) is None  # of one row group
    pq.write_table(table_of(8), path, row_group_size=50)
    footer, content = pq.read_metadata(path), path.read_bytes()
    assert sliced_of(path) is not None
    assert slice_footer(footer, content[-8 - footer.serialized_size : -9], 0) is None  # damaged
    with monkeypatch.context() as patch:
        patch.setattr(footers, "LONG_BYTES", 1 << 20)
        assert sliced_of(path) is None
    monkeypatch.setattr(footers, "IS_BUILT", False)
    assert sliced_of(path) is None


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_stream_is_that_of_whole_footers(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    dataset = Dataset(f"{prefix}{write_table([[9, 31, 24], [20] * 20])}", schema)
    opened = []

    def watched(*args: Any) -> Any:
        opened.append(slice_footer(*args))
        return opened[-1]

    monkeypatch.setattr("distrain.loader.reading.open_files.slice_footer", watched)
    with Loader(dataset, batch_size=20, decode_threads=3) as loader:
        sliced = [*loader.epochs(2)]
    assert opened
    assert None not in opened
    monkeypatch.setattr(footers, "LONG_BYTES", 1 << 30)
    with Loader(dataset, batch_size=20) as loader:
        whole = [*loader.epochs(2)]
    assert_same(sliced, whole)


RANK = """
import ctypes, gc, json, sys
from pathlib import Path

import psutil
import pyarrow
from distrain.loader import Dataset, Loader
from distrain.loader.partition.table import Table
from distrain.schema import Schema

loader = Loader(
    Dataset.of(Table.from_bytes(Path(sys.argv[1]).read_bytes()), Schema.load(Path(sys.argv[2]))),
    global_batch_size=4000,
    lanes=200,  # of which the rank's go through half of the files at once
    rank=0,
    num_ranks=2,
    decode_threads=2,
)
with loader.epoch(1) as batches:
    for _ in range(12):
        next(batches)
    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    used = psutil.Process().memory_full_info().uss
print(json.dumps({"used": used, "memory": loader.memory.total_bytes}))
"""


def rank_memory(folder: Path, num_files: int, schema: Schema) -> dict[str, int]:
    """What a rank takes whose table is so many files, from the footers that it is handed."""
    first, *others = [folder / f"{number}.parquet" for number in range(num_files)]
    for path in others:
        if not path.exists():
            os.link(first, path)
    own = read_footers(str(first), schema)
    groups = [
        replace(group, file=str(path)) for path in (first, *others) for group in own.row_groups
    ]
    handed, told = folder / f"{num_files}.table", folder / "schema.json"
    handed.write_bytes(Table(groups, own.fingerprint).to_bytes())
    schema.save(told)
    words = [sys.executable, "-c", RANK, str(handed), str(told)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    measured: dict[str, int] = json.loads(found.stdout)
    return measured


@pytest.mark.slow
def test_forty_files_of_a_thousand_row_groups_take_a_rank_a_tenth_more_than_ten(
    tmp_path: Path,
) -> None:
    names = [f"C{n}" for n in range(40)]
    columns: dict[str, Any] = {name: np.arange(20_000, dtype=np.int32) for name in names}
    columns["label"] = np.zeros(20_000, np.float32)
    pq.write_table(pa.table(columns), tmp_path / "0.parquet", row_group_size=20, compression="lz4")
    ids = [ColumnSchema(name, "int32", (Tags.CATEGORICAL,), 2**31) for name in names]
    schema = Schema((ColumnSchema("label", "float32", (Tags.TARGET,)), *ids))
    ten, forty = (rank_memory(tmp_path, num_files, schema) for num_files in (10, 40))
    used = [round(told["used"] / 1e6) for told in (ten, forty)]
    print(f"{used[0]} MB with 10 files, {used[1]} MB with 40; {forty['memory']} counted")
    assert forty["used"] < 1.1 * ten["used"]
