"""Footers of which little is kept: the same rows are read, and memory stays as files get more."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from distrain.loader import Dataset, Loader, footers
from distrain.loader.footers import slice_footer
from distrain.schema import Schema

ROWS = 400


@pytest.fixture(autouse=True)
def all_footers_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.loader.footers.LONG_BYTES", 0)
    monkeypatch.setattr("distrain.loader.arrow.LONG_BYTES", 0)


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


@pytest.mark.parametrize("num_columns", [6, 14, 15, 40, 200])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "write_page_index": True, "write_page_checksum": True},
        {"write_statistics": False, "use_dictionary": False, "version": "1.0"},
    ],
    ids=["plain", "page index", "no statistics"],
)
@pytest.mark.parametrize("group_rows", [7, 30, 200])
def test_each_slice_is_the_footer_of_its_row_group(
    tmp_path: Path, num_columns: int, options: dict[str, Any], group_rows: int
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(num_columns), path, row_group_size=group_rows, **options)
    whole = pq.read_metadata(path)
    with open(path, "rb") as handle:
        sliced = slice_footer(whole, handle)
        assert sliced is not None
        for index in range(whole.num_row_groups):
            begin, end = sliced.span(index)
            handle.seek(begin)
            footer = sliced.footer_of(handle.read(end - begin))
            assert footer.num_row_groups == 1
            assert footer.row_group(0).equals(whole.row_group(index))
            assert footer.schema.equals(whole.schema)
            assert footer.metadata == whole.metadata
    with pq.ParquetFile(path, metadata=footer) as last, pq.ParquetFile(path) as file:
        assert last.schema_arrow == file.schema_arrow
        assert last.read_row_group(0).equals(file.read_row_group(whole.num_row_groups - 1))


def test_values_that_look_like_a_row_group_lead_to_the_whole_footer(tmp_path: Path) -> None:
    looks_like = int.from_bytes(b"\x19\x3c\x26\x00", "little")  # the begin, with three columns
    cells = np.full(ROWS, looks_like, np.int32)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": cells, "b": cells, "c": cells}), path, row_group_size=50)
    with open(path, "rb") as handle:
        assert handle.read().count(b"\x19\x3c\x26") > ROWS // 50
        assert slice_footer(pq.read_metadata(path), handle) is None


def test_what_need_not_or_cannot_be_sliced_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(8), path, row_group_size=50, store_schema=False)
    with open(path, "rb") as handle:
        assert slice_footer(pq.read_metadata(path), handle) is None  # nothing tells where it ends
    pq.write_table(table_of(8), path, row_group_size=50)
    with open(path, "rb") as handle:
        assert slice_footer(pq.read_metadata(path), handle) is not None
        monkeypatch.setattr(footers, "LONG_BYTES", 1 << 20)
        assert slice_footer(pq.read_metadata(path), handle) is None


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_stream_is_that_of_whole_footers(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    dataset = Dataset(f"{prefix}{write_table([[9, 31, 24], [20] * 20])}", schema)
    opened = []

    def watched(*args: Any) -> Any:
        opened.append(slice_footer(*args))
        return opened[-1]

    monkeypatch.setattr("distrain.loader.arrow.slice_footer", watched)
    with Loader(dataset, batch_size=20, decode_threads=3) as loader:
        sliced = [*loader.epochs(2)]
    assert opened
    assert None not in opened
    monkeypatch.setattr("distrain.loader.arrow.LONG_BYTES", 1 << 30)
    with Loader(dataset, batch_size=20) as loader:
        whole = [*loader.epochs(2)]
    for a, b in zip(sliced, whole, strict=True):
        assert torch.equal(a.categorical, b.categorical)
        assert torch.equal(a.continuous, b.continuous)


MEMORY = """
import ctypes, gc, json, psutil, sys
from distrain.loader.arrow import ArrowReader
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted

reader = ArrowReader([Wanted("C1", "id", 2**31)])
used = []
for first, last in ((0, 10), (10, 100)):
    for number in range(first, last):
        assert len(reader.read(RowGroup(f"{sys.argv[1]}/{number}.parquet", 7, 20)).cells[0]) == 20
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    used.append(psutil.Process().memory_full_info().uss)
print(json.dumps(used))
"""


@pytest.mark.slow
def test_a_hundred_files_of_a_thousand_row_groups_take_the_memory_of_ten(tmp_path: Path) -> None:
    columns = {f"C{n}": np.arange(20_000, dtype=np.int32) for n in range(40)}
    pq.write_table(pa.table(columns), tmp_path / "0.parquet", row_group_size=20, compression="lz4")
    for number in range(1, 100):
        os.link(tmp_path / "0.parquet", tmp_path / f"{number}.parquet")
    words = [sys.executable, "-c", MEMORY, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    ten, hundred = json.loads(told.stdout)
    print(f"{ten / 1e6:.0f} MB with 10 files, {hundred / 1e6:.0f} MB with 100")
    assert hundred < 1.05 * ten
