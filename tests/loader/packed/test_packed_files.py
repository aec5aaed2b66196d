"""Packed files: what goes in comes out, for our reader and for anybody's."""

import dataclasses
import gc
import json
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from packed_tables import COLUMNS, SCHEMA, assert_same_cells, float32_cells, make_table

from distrain.errors import DataError, OutputError
from distrain.loader.packed import mark as mark_module
from distrain.loader.packed.mark import MARK_KEY, is_packed
from distrain.loader.packed.pack import pack
from distrain.loader.packed.raw_file import Buffers
from distrain.loader.packed.reader import PackedFile, PackedReader
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.schema import Schema
from distrain.schema.files import find_schema


@pytest.fixture
def packed(source, tmp_path):
    pack(str(source), SCHEMA, tmp_path / "packed", row_group_rows=64, rows_per_file=256)
    return tmp_path / "packed"


def read_all(folder, columns=COLUMNS, schema=SCHEMA):
    reader = PackedReader(columns)
    groups = read_footers(str(folder), schema).row_groups
    parts = [[column.copy() for column in reader.read(group).cells] for group in groups]
    reader.close()
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def first_group(folder):
    return read_footers(str(folder), SCHEMA).row_groups[0]


def data_range(file):
    """First byte and one past the last byte of all column chunks."""
    group = pq.read_metadata(file).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return chunks[0].data_page_offset, sum(c.total_compressed_size for c in chunks)


def test_the_schema_beside_it_has_what_was_packed(packed):
    kept = Schema.load(find_schema(packed))
    assert set(kept.names) == {column.name for column in COLUMNS}
    assert kept["user"].cardinality == 1000


def test_only_marked_files_are_packed(packed, source, wording):
    assert is_packed(pq.read_metadata(packed / "part-00000.parquet"))
    assert not is_packed(pq.read_metadata(source / "part-0.parquet"))
    reader = PackedReader(COLUMNS)
    with wording.raises(DataError):
        reader.read(first_group(source))


def test_a_file_of_a_later_version_is_parquet_like_any_other(tmp_path):
    table = make_table(5).replace_schema_metadata({MARK_KEY: '{"version": 3}'})
    pq.write_table(table, tmp_path / "a.parquet")
    assert not is_packed(pq.read_metadata(tmp_path / "a.parquet"))


@st.composite
def tables(draw):
    num_rows = draw(st.integers(1, 60))
    ids = draw(st.sampled_from([pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.int8()]))
    numbers = draw(st.sampled_from([pa.float32(), pa.float64(), pa.int32(), pa.bool_()]))

    def some(elements):
        return draw(st.lists(elements, min_size=num_rows, max_size=num_rows))

    values = st.integers(0, 1)
    if pa.types.is_floating(numbers):
        values = st.floats(-(2.0**100), 2.0**100, width=32)
    return pa.table(
        {
            "price": pa.array([numbers.to_pandas_dtype()(v) for v in some(values)], numbers),
            "user": pa.array(some(st.integers(0, 127)), ids),
            "item.id": pa.array(some(st.integers(0, 49)), pa.int64()),
            "clicked": pa.array(some(st.integers(0, 1)), pa.int8()),
            "importance": pa.array(some(st.floats(0, 10)), pa.float64()),
        }
    )


@settings(max_examples=20, deadline=None)
@given(
    table=tables(),
    source_rows=st.integers(1, 40),
    group_rows=st.integers(1, 40),
    rows_per_file=st.integers(1, 60),
    wanted=st.sets(st.sampled_from(COLUMNS), min_size=1),
)
def test_round_trip(tmp_path_factory, table, source_rows, group_rows, rows_per_file, wanted):
    folder = tmp_path_factory.mktemp("round-trip")
    pq.write_table(table, folder / "a.parquet", row_group_size=source_rows)
    report = pack(
        str(folder / "a.parquet"),
        SCHEMA,
        folder / "packed",
        row_group_rows=group_rows,
        rows_per_file=rows_per_file,
    )
    assert report.rows == table.num_rows
    assert_same_cells(read_all(folder / "packed"), float32_cells(table))
    columns = [column for column in COLUMNS if column in wanted]
    assert_same_cells(read_all(folder / "packed", columns), float32_cells(table, columns))


def test_nulls_become_what_the_policy_says(tmp_path):
    table = make_table(4).set_column(1, "price", pa.array([1.5, None, 3.0, None]))
    table = table.set_column(2, "user", pa.array([None, 1, 2, 3]))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="null"):
        pack(str(tmp_path / "a.parquet"), SCHEMA, tmp_path / "packed")
    fills = {"fill_null_id": 7, "fill_null_value": -1.0}
    pack(str(tmp_path / "a.parquet"), SCHEMA, tmp_path / "packed", **fills)
    found = pq.read_table(tmp_path / "packed")
    assert found["price"].to_pylist() == [1.5, -1.0, 3.0, -1.0]
    assert found["user"].to_pylist() == [7, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("user", [0, 1, 1000, -1]),
        ("user", [0, 1, -1, 1000]),
        ("price", [1.0, 2.0, float("nan"), 1.0]),
        ("price", [1.0, 2.0, 1e300, 1.0]),
        ("clicked", [0.0, 1.0, 0.5, 1.0]),
        ("importance", [0.0, 1.0, -0.5, 1.0]),
    ],
)
def test_a_value_that_training_refuses_is_named_and_nothing_is_left(
    tmp_path, name, values, wording
):
    table = make_table(4)
    table = table.set_column(table.schema.names.index(name), name, pa.array(values))
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    with wording.raises(DataError) as caught:
        pack(str(tmp_path / "a.parquet"), SCHEMA, tmp_path / "packed")
    assert caught.value.where["row in the group"] == 2
    assert caught.value.where["column"] == name
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_an_output_is_replaced_only_when_told(packed, source, wording):
    with pytest.raises(OutputError, match="exists"):
        pack(str(source), SCHEMA, packed)
    pack(str(source / "part-0.parquet"), SCHEMA, packed, overwrite=True)
    assert len(read_all(packed)[0]) == 300
    for output in (packed, packed.parent):
        with wording.raises(OutputError):
            pack(str(packed), SCHEMA, output, overwrite=True)
    assert len(read_all(packed)[0]) == 300


def test_a_constant_column_comes_from_the_row_group(packed):
    group = first_group(packed)
    group = RowGroup(group.file, group.index, group.num_rows, (("hour", 3),))
    columns = (WantedColumn("hour", "id"), WantedColumn("price", "value"))
    hour, price = PackedReader(columns).read(group).cells
    assert hour.tolist() == [3] * 64
    np.testing.assert_array_equal(price, float32_cells(make_table(500))[2][:64])


# What happens to files afterwards.


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[1:3]], ids=["all", "some"])
def test_a_flipped_byte_anywhere_in_what_is_read_is_noticed(tmp_path, columns):
    pq.write_table(make_table(9), tmp_path / "a.parquet")
    pack(str(tmp_path / "a.parquet"), SCHEMA, tmp_path / "packed")
    file = tmp_path / "packed" / "part-00000.parquet"
    good = file.read_bytes()
    group = first_group(tmp_path / "packed")
    start, length = data_range(file)
    chunks = pq.read_metadata(file).row_group(0)
    names = [chunks.column(i).path_in_schema for i in range(chunks.num_columns)]
    for place in range(start, start + length):
        file.write_bytes(good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
        chunk = max(i for i in range(len(names)) if chunks.column(i).data_page_offset <= place)
        end = chunks.column(chunk).data_page_offset + chunks.column(chunk).total_compressed_size
        reader = PackedReader(columns)
        if names[chunk] in [c.name for c in columns] and place >= end - 4 * 9:
            with pytest.raises(DataError, match="checksum") as caught:
                reader.read(group)
            place_told = {"file": str(file), "row group": 0, "column": names[chunk]}
            assert caught.value.where == place_told
        else:  # a page's header, which nobody needs
            reader.read(group)


def with_mark(file, mark, num_rows=9):
    """A parquet file with such a mark in its footer."""
    table = pa.table({"a": np.arange(num_rows, dtype=np.int32)})
    table = table.replace_schema_metadata({MARK_KEY: mark})
    pq.write_table(table, file, compression="none", use_dictionary=False)
    return RowGroup(str(file), 0, num_rows)


def marked(**changes):
    """A mark that fits its own checksum, whatever it says."""
    body = {"columns": ["a"], "source": "", "row_groups": [[4, 60, 9, "0" * 16, "0" * 16]]}
    body |= changes
    return json.dumps({"version": 1, "checksum": mark_module._checksum_of(body), **body})


@pytest.fixture
def no_collection():
    """Where lists nest as deep as Python allows, finalizers of other tests' garbage would fail."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "mark",
    [
        "[" * 100_000,
        "[]",
        "7",
        marked(row_groups=7),
        marked(row_groups=[7]),
        marked(row_groups=[["4", 60, 9, "0", "0" * 16]]),
        marked(row_groups=[[4, "60", 9, "0", "0" * 16]]),
        marked(row_groups=[[4, 60, "9", "0", "0" * 16]]),
        marked(row_groups=[[4, 60, 9.0, "0", "0" * 16]]),
        marked(row_groups=[[-4, 60, 9, "0", "0" * 16]]),
        marked(row_groups=[[4, 60, 9, 0, "0" * 16]]),
        marked(row_groups=[[4, 60, 9, "0", ""]]),
        marked(row_groups=[[4, 10**15, 9, "0", "0" * 16]]),
        marked(columns=7),
        marked(columns=["b"]),
    ],
    ids=range(15),
)
@pytest.mark.usefixtures("no_collection")
def test_a_mark_made_to_mislead_is_an_error_in_words(tmp_path, mark):
    group = with_mark(tmp_path / "a.parquet", mark)
    assert is_packed(pq.read_metadata(group.file))
    with pytest.raises(DataError):
        PackedReader([WantedColumn("a", "id")]).read(group)


def test_no_more_memory_is_asked_for_than_the_file_is_long(packed, monkeypatch, wording):
    group = first_group(packed)
    layout = PackedFile(group.file).layout(0, group.num_rows, COLUMNS)
    claimed = [dataclasses.replace(v, start=v.start + 10**9) for v in layout.cells]
    claimed = dataclasses.replace(layout, cells=tuple(claimed))
    monkeypatch.setattr("distrain.loader.packed.reader.group_layout", lambda *_: claimed)
    monkeypatch.setattr(Buffers, "take", lambda *_: pytest.fail("asked for memory"))
    with wording.raises(DataError):
        PackedReader(COLUMNS).read(group)


def test_a_flipped_byte_in_the_footer_is_noticed_or_does_no_harm(tmp_path):
    pq.write_table(make_table(9), tmp_path / "a.parquet")
    pack(str(tmp_path / "a.parquet"), SCHEMA, tmp_path / "packed")
    file = tmp_path / "packed" / "part-00000.parquet"
    good = file.read_bytes()
    group = first_group(tmp_path / "packed")
    expected = [column.copy() for column in PackedReader(COLUMNS).read(group).cells]
    start, length = data_range(file)
    noticed = 0
    for place in range(start + length, len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        try:
            cells = PackedReader(COLUMNS).read(group).cells
        except DataError:
            noticed += 1
        else:
            assert_same_cells(cells, expected)
    assert noticed > 100


@pytest.mark.parametrize("kept", [0, 10, 700, -1])
def test_a_file_cut_short_is_noticed(packed, kept):
    group = first_group(packed)
    fresh, open_already = PackedReader(COLUMNS), PackedReader(COLUMNS)
    open_already.read(group)
    os.truncate(group.file, kept % os.path.getsize(group.file))
    for reader in (fresh, open_already):
        with pytest.raises(DataError) as caught:
            reader.read(group)
        assert caught.value.where["file"] == group.file


def test_a_file_cut_short_between_the_look_and_the_read_is_noticed(packed, monkeypatch, wording):
    group = first_group(packed)
    reader = PackedReader(COLUMNS)
    reader.read(group)
    monkeypatch.setattr(PackedFile, "is_unchanged", lambda _: True)
    os.truncate(group.file, 700)
    with wording.raises(DataError):
        reader.read(group)


def test_a_replaced_file_is_noticed(packed, source, tmp_path):
    group = first_group(packed)
    reader = PackedReader(COLUMNS)
    reader.read(group)
    pack(str(source), SCHEMA, tmp_path / "other", row_group_rows=64, rows_per_file=256)
    os.replace(tmp_path / "other" / "part-00000.parquet", group.file)
    with pytest.raises(DataError, match="replaced"):
        reader.read(group)


def test_a_removed_file_is_noticed(packed, wording):
    group = first_group(packed)
    reader = PackedReader(COLUMNS)
    os.unlink(group.file)
    with wording.raises(DataError) as caught:
        reader.read(group)
    assert caught.value.where == {"file": group.file, "row group": 0}


def test_a_row_group_that_is_not_as_planned_is_noticed(packed, wording):
    group = first_group(packed)
    reader = PackedReader(COLUMNS)
    with wording.raises(DataError):
        reader.read(RowGroup(group.file, 0, 63))
    with wording.raises(DataError):
        reader.read(RowGroup(group.file, 4, 64))


def test_a_column_that_is_not_as_wanted_is_named(packed, wording):
    group = first_group(packed)
    with wording.raises(DataError):
        PackedReader([WantedColumn("age", "value")]).read(group)
    with wording.raises(DataError):
        PackedReader([WantedColumn("price", "id", 9)]).read(group)


def test_a_thread_that_ended_leaves_its_buffer_to_the_next(packed):
    group = first_group(packed)
    reader = PackedReader(COLUMNS)
    addresses = []

    def read():
        cells = reader.read(group).cells
        assert_same_cells(cells, [c[:64] for c in float32_cells(make_table(500))])
        addresses.append(cells[0].ctypes.data)

    for _ in range(3):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert len(set(addresses)) == 1
