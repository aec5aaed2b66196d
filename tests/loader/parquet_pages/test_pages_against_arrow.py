"""Columns that are decoded from their pages have the bits that Arrow gives them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from page_files import (
    DTYPES,
    from_arrow,
    in_one_call,
    in_parts,
    opened,
    same,
    written,
)

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.parquet_pages.leaves import BUILT, page_columns
from distrain.loader.parquet_pages.pages_of_file import PagesOfFile
from distrain.loader.parquet_pages.thread_memory import ThreadMemory
from distrain.schema import ColumnSchema, Schema, Tags

pytestmark = pytest.mark.skipif(not BUILT, reason="distrain was built without a compiler")

CODECS = ("none", "snappy", "lz4")
ROWS = 3000


def columns_of(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """What ids and values look like: skewed, in runs, constant, all different, odd floats."""
    skewed = (rng.pareto(1.1, rows) * 10).astype(np.int64) % 500_000
    runs = np.repeat(rng.integers(0, 50, rows), rng.integers(1, 40, rows))[:rows]
    odd = np.array([0.0, -0.0, np.nan, np.inf, 1e-42, 1.5])
    return {
        "skewed": skewed.astype(np.int32),
        "runs": runs.astype(np.int32),
        "constant": np.full(rows, -7, np.int32),
        "bits": rng.integers(0, 2, rows).astype(np.int32),
        "distinct": rng.permutation(rows).astype(np.int32),
        "wide": skewed * 2**33 - 5,
        "float": rng.choice(odd, rows).astype(np.float32),
        "plain": rng.standard_normal(rows).astype(np.float32),
        "double": rng.choice(odd, rows),
    }


def table_of(columns: dict[str, np.ndarray], *, nullable: bool) -> pa.Table:
    table = pa.table(columns)
    return table.cast(pa.schema([field.with_nullable(nullable) for field in table.schema]))


def assert_same_columns(content: bytes, rng: np.random.Generator) -> None:
    parquet = opened(content)
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        for number in range(parquet.metadata.num_columns):
            cuts = np.sort(rng.integers(0, rows + 1, rng.integers(0, 6)))
            expected = from_arrow(parquet, group, number)
            found = in_one_call(content, parquet, group, number)
            assert same(found, expected), (group, number)
            skipped = int(rng.integers(0, rows + 1)) if len(cuts) % 2 else 0
            some = cuts[cuts >= skipped] - skipped
            parts = in_parts(content, parquet, group, number, None, some, skipped)
            assert same(parts[skipped:], expected[skipped:]), (group, number)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_values_in_pages_of_any_size(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.integers(1, 400))
    kind = data.draw(st.sampled_from(sorted(DTYPES, key=str)))
    distinct = data.draw(st.sampled_from([1, 2, 3, 17, 256, 70_000]))
    pool = rng.integers(-(2**31), 2**31, distinct).astype(DTYPES[kind])
    values = np.repeat(rng.choice(pool, rows), data.draw(st.sampled_from([1, 7, 8, 9, 300])))
    table = table_of({"x": values[:20_000]}, nullable=data.draw(st.booleans()))
    content = written(
        table,
        compression=data.draw(st.sampled_from(CODECS)),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        data_page_size=data.draw(st.sampled_from([1, 64, 1000, 1 << 20])),
        write_batch_size=data.draw(st.sampled_from([1, 5, 64, 1024])) if rows < 100 else 64,
        row_group_size=data.draw(st.sampled_from([100, 1 << 20])) if rows < 100 else None,
        dictionary_pagesize_limit=data.draw(st.sampled_from([1, 100, 1 << 20])),
        use_dictionary=data.draw(st.booleans()),
        write_page_checksum=data.draw(st.booleans()),
    )
    assert_same_columns(content, rng)


def read_by_file(path: Path, table: pa.Table, **options: Any) -> dict[str, Any]:
    """Each column of the first row group as `PagesOfFile` reads it; `None` is left to Arrow."""
    pq.write_table(table, path, **options)
    with pq.ParquetFile(path) as parquet:
        pages = PagesOfFile(str(path), page_columns(parquet, table.column_names))
        rows = parquet.metadata.row_group(0).num_rows
        read = pages.read(0, rows, table.column_names)
        found = {name: read.get(name) for name in table.column_names}
        pages.close()
    return found


def test_what_is_unknown_is_left_to_arrow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "good": pa.array([1, 2, 3], pa.int32()),
            "null": pa.array([1, None, 3], pa.int32()),
            "all null": pa.array([None] * 3, pa.float32()),
            "large": pa.array([1, 2, 3], pa.uint64()),
            "true": pa.array([True, False, True]),
            "text": pa.array(["a", "b", "c"]),
            "list": pa.array([[1], [2], []], pa.list_(pa.int32())),
            "struct": pa.array([{"a": 1}] * 3, pa.struct([("a", pa.int32())])),
        }
    )
    path = tmp_path / "f.parquet"
    for statistics in (True, False):  # without them nulls are met in the levels
        for version in ("1.0", "2.0"):
            options = {"write_statistics": statistics, "data_page_version": version}
            found = read_by_file(path, table, **options)
            assert found.pop("good").tolist() == [1, 2, 3]
            assert set(found.values()) == {None}
    ids = table.select(["good"])
    for options in (
        {"compression": "brotli"},
        {"compression": "zstd"},
        {"compression": "gzip"},
        {"column_encoding": "DELTA_BINARY_PACKED", "use_dictionary": False},
        {"column_encoding": "BYTE_STREAM_SPLIT", "use_dictionary": False},
    ):
        assert read_by_file(path, ids, **options) == {"good": None}
    pq.write_table(ids.slice(0, 0), path)
    twice = pa.Table.from_arrays([ids["good"], ids["good"]], names=["good", "good"])
    assert read_by_file(path, twice) == {"good": None}


def test_small_unsigned_and_dates_come_as_arrow_has_them(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    numbers = {
        kind: pa.array([0, 1, 3, top], kind)
        for kind, top in (
            (pa.int8(), -128),
            (pa.uint8(), 255),
            (pa.int16(), -(2**15)),
            (pa.uint16(), 2**16 - 1),
            (pa.uint32(), 2**32 - 1),
            (pa.date32(), -5),
        )
    }
    table = pa.table({str(kind): values for kind, values in numbers.items()})
    found = read_by_file(path, table)
    for kind, values in numbers.items():
        plain = values.view(pa.int32()) if kind == pa.date32() else values
        assert same(found[str(kind)], plain.to_numpy()), kind


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_nulls_become_what_fills_them(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.sampled_from([1, 8, 9, 100, 2500]))
    kind = data.draw(st.sampled_from(sorted(DTYPES, key=str)))
    values = rng.integers(-(2**31), 2**31, 1 + rng.integers(200))[rng.integers(0, 1, rows)]
    values = np.where(rng.random(rows) < 0.5, values, rng.integers(0, 50, rows))
    share = data.draw(st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]))
    runs = np.repeat(rng.random(rows) < share, data.draw(st.sampled_from([1, 8, 70])))[:rows]
    column = pa.array(values.astype(DTYPES[kind]), kind, mask=runs)
    content = written(
        pa.table({"x": column}),
        compression=data.draw(st.sampled_from(CODECS)),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        data_page_size=data.draw(st.sampled_from([1, 300, 1 << 20])),
        write_batch_size=data.draw(st.sampled_from([7, 64, 1024])),
        use_dictionary=data.draw(st.booleans()),
        write_statistics=False,
    )
    parquet = opened(content)
    expected = from_arrow(parquet, 0, 0, 3.0)
    assert same(in_one_call(content, parquet, 0, 0, 3.0), expected)
    cuts = np.sort(rng.integers(0, rows + 1, rng.integers(0, 6)))
    skipped = int(rng.integers(0, rows + 1)) if data.draw(st.booleans()) else 0
    parts = in_parts(content, parquet, 0, 0, 3.0, np.maximum(cuts - skipped, 0), skipped=skipped)
    assert same(parts[skipped:], expected[skipped:])


def test_nulls_are_left_to_arrow_where_what_fills_them_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"a": pa.array([1, None], pa.int32()), "b": pa.array([2, None], pa.int8())})
    pq.write_table(table, path)
    with pq.ParquetFile(path) as parquet:
        for fill, expected in ((4, [1, 4]), (0.5, None), (2**31, None)):
            pages = PagesOfFile(
                str(path), page_columns(parquet, ["a", "b"], fills={"a": fill, "b": 5})
            )
            found = pages.read(0, 2, ["a"]).get("a")
            assert (found if found is None else found.tolist()) == expected
            assert pages.read(0, 2, ["b"]) == {}
            pages.close()


def test_a_stream_of_int64_is_widened_where_a_value_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    values = np.arange(3000)
    values[2500] = 2**40
    pq.write_table(pa.table({"a": values}), path, use_dictionary=False, data_page_size=500,
                   write_batch_size=50)  # fmt: skip
    with pq.ParquetFile(path) as parquet:
        pages = PagesOfFile(str(path), page_columns(parquet, ["a"]))
        for skips in (False, True):
            column = pages.open(0, 3000, "a")
            assert column is not None
            pages.close()  # which an open column outlives
            found = []
            for _ in range(10):
                if skips and len(found) % 2:
                    column.skip(300)
                    found.append(values[300 * len(found) : 300 * len(found) + 300])
                else:
                    found.append(column.read(300))
            assert (np.concatenate(found) == values).all()
            assert [one.dtype for one in found][:3:2] == [np.int32] * 2


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("limit", [256, 257, 65_536, 65_537])
def test_ids_come_in_as_few_bytes_as_their_limit_allows(
    tmp_path: Path, kind: pa.DataType, limit: int
) -> None:
    path = tmp_path / "f.parquet"
    narrow = np.uint8 if limit <= 256 else np.uint16 if limit <= 65_536 else np.int32
    ids = [limit - 1, 0, None, 7] * 500
    wrong = [[0] * 1999 + [one] for one in (1 << 16, -1)]
    names = ["good", "large", "negative"]
    table = pa.table([pa.array(values, kind) for values in (ids, *wrong)], names)
    for dictionary in (True, False):
        options = {"use_dictionary": dictionary, "data_page_size": 500, "write_batch_size": 50}
        pq.write_table(table, path, row_group_size=1000, **options)
        with pq.ParquetFile(path) as parquet:
            fills, limits = dict.fromkeys(names, 5), dict.fromkeys(names, limit)
            pages = PagesOfFile(str(path), page_columns(parquet, names, fills, limits))
            opened = {name: pages.open(1, 1000, name) for name in names}
            groups = [pages.read(group, 1000, names) for group in (0, 1, 0)]
            pages.close()
        expected = [5 if one is None else one for one in ids[:1000]]
        for found in groups:
            assert found["good"].dtype == narrow
            assert found["good"].tolist() == expected
        assert [found["large"].dtype for found in groups] == [narrow, np.int32, np.int32]
        assert [groups[1][name].tolist()[-1] for name in names[1:]] == [1 << 16, -1]
        for name, column in opened.items():
            assert column is not None
            column.skip(10)
            parts = [column.read(480), column.read(510)]
            # A dictionary is narrowed as a whole, plain values as they come.
            assert parts[0].dtype == (narrow if name == "good" or not dictionary else np.int32)
            values = [*parts[0].tolist(), *parts[1].tolist()]
            assert values == [5 if one is None else one for one in table[name].to_pylist()[1010:]]


def test_values_keep_their_memory_as_long_as_anything_refers_to_it() -> None:
    memory = ThreadMemory()
    dtype = np.dtype(np.int32)
    first = memory.columns_for(100, [dtype])[0]
    first[:] = 1
    part = first[10:20]
    del first
    others = [memory.columns_for(100, [dtype])[0] for _ in range(20)]
    for values in others:
        values[:] = 2
    assert part.tolist() == [1] * 10
    assert len({values.ctypes.data for values in others}) == 20
    latest = {values.ctypes.data for values in others[-8:]}
    del others, values
    again = [memory.columns_for(80, [dtype])[0] for _ in range(3)]
    assert len({values.ctypes.data for values in again} & latest) == 3
    assert memory.columns_for(0, [dtype])[0].shape == (0,)


def test_columns_in_one_piece_of_memory_do_not_touch_each_other() -> None:
    memory = ThreadMemory()
    dtypes = [np.dtype(kind) for kind in (np.uint8, np.float64, np.uint16, np.int32)]
    columns = memory.columns_for(101, dtypes)
    assert [column.dtype for column in columns] == dtypes
    for number, column in enumerate(columns):
        assert column.shape == (101,)
        assert column.flags.aligned
        column[:] = number
    assert [set(column.tolist()) for column in columns] == [{0}, {1}, {2}, {3}]
    kept, address = columns[1][:5], columns[0].ctypes.data
    del columns, column
    assert memory.columns_for(101, dtypes)[0].ctypes.data != address  # a part is in use
    assert kept.tolist() == [1] * 5
    del kept
    addresses = {memory.columns_for(101, dtypes)[0].ctypes.data for _ in range(3)}
    assert address in addresses or len(addresses) == 1  # and used again


SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("I1", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), cardinality=1000),
        ColumnSchema("C2", "int64", (Tags.CATEGORICAL,), cardinality=1000),
    )
)


@pytest.mark.parametrize("enabled", ["0", "1"])
def test_a_bad_id_is_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: str
) -> None:
    monkeypatch.setenv("DISTRAIN_PAGES", enabled)
    numbers = pa.array([0.0] * 3, pa.float32())
    for bad in (None, 1000, 1 << 16, -1):
        ids = pa.array([1, bad, 999], pa.int32())
        table = pa.table({"label": numbers, "I1": numbers, "C1": ids, "C2": pa.array([1, 2, 999])})
        pq.write_table(table, tmp_path / "f.parquet", write_statistics=False)
        loader = Loader(Dataset(tmp_path, SCHEMA), batch_size=3, lanes=1)
        with loader, pytest.raises(DataError, match="null" if bad is None else f"{bad}") as caught:
            next(iter(loader))
        where = caught.value.where
        assert (where["column"], where["row in the group"]) == ("C1", 1)
