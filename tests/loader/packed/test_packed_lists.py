"""Columns of lists in packed files and in the cache: the same batches as from parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from same_batches import assert_same
from wording import Wording

from distrain.errors import DataError, OutputError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.packed import mark as mark_module, writer as writer_module
from distrain.loader.packed.pack import pack
from distrain.loader.packed.reader import PackedReader
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.schema import ColumnSchema, Schema, Tags

ROW = ColumnSchema("row", tags=(Tags.CATEGORICAL,))
TAGS = ColumnSchema("tags", tags=(Tags.CATEGORICAL,), cardinality=1000, is_list=True)
PRICES = ColumnSchema("prices", tags=(Tags.CONTINUOUS,), is_list=True, is_ragged=True)
SCHEMA = Schema((ROW, TAGS, PRICES))
ITEMS = WantedColumn("tags", "id", 1000, is_list=True)


def lists_table(lengths: list[int], **types: pa.DataType) -> pa.Table:
    random = np.random.default_rng(len(lengths))
    tags = [random.integers(0, 1000, length).tolist() for length in lengths]
    prices = [(random.integers(-99, 99, length) / 4).tolist() for length in reversed(lengths)]
    return pa.table(
        {
            "prices": pa.array(prices, pa.list_(types.get("prices", pa.float64()))),
            "row": np.arange(len(lengths)),
            "tags": pa.array(tags, pa.list_(types.get("tags", pa.int64()))),
        }
    )


def dataset_of(path: Path | str) -> Dataset:
    return Dataset(str(path), SCHEMA, need_label=False)


def batches(dataset: Dataset, **options: Any) -> list[Batch]:
    with Loader(dataset, **{"batch_size": 16, "lanes": 6, "seed": 3, **options}) as loader:
        return [batch for epoch in range(2) for batch in loader.epoch(epoch)]


def packed(table: pa.Table, folder: Path, **options: Any) -> Path:
    pq.write_table(table, folder / "a.parquet")
    pack(str(folder / "a.parquet"), SCHEMA, folder / "packed", **options)
    return folder / "packed" / "part-00000.parquet"


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 0, 1, 2, 9]), min_size=1, max_size=70),
    types=st.sampled_from(
        [{"tags": pa.int32(), "prices": pa.float32()}, {"tags": pa.uint16(), "prices": pa.int8()}]
    ),
    rows=st.integers(1, 30),
    large=st.sampled_from([24, 1000]),
    shuffle=st.sampled_from(["chunk", "full", "none"]),
    threads=st.integers(1, 2),
)
def test_the_cache_and_packed_files_give_the_batches_of_parquet(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    types: dict[str, pa.DataType],
    rows: int,
    large: int,
    shuffle: str,
    threads: int,
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    pq.write_table(lists_table(lengths, **types), folder / "a.parquet", row_group_size=rows)
    pack(str(folder / "a.parquet"), SCHEMA, folder / "packed", row_group_rows=rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
        options: Any = {"shuffle": shuffle, "decode_threads": threads}
        plain = dataset_of(folder / "a.parquet")
        expected = batches(plain, **options)
        # Epochs overlap in a loader, so that the first may still fill what the second reads.
        for _ in range(2):
            assert_same(batches(plain, cache=str(folder / "cache"), **options), expected)
        with Loader(dataset_of(folder / "packed"), batch_size=1) as loader:
            assert loader.reader_choice.name == "packed"
        assert_same(batches(dataset_of(folder / "packed"), **options), expected)


@pytest.mark.parametrize("large", [24, 1000])
def test_a_flipped_byte_anywhere_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
    file = packed(lists_table([1, 0, 3, 2] * 8), tmp_path)
    dataset = dataset_of(file)
    good = file.read_bytes()
    group = mark_module.mark_of(pq.read_metadata(file), str(file)).groups[0]
    chunks = pq.read_metadata(file).row_group(0)
    ends = [c.data_page_offset + c.total_compressed_size for c in map(chunks.column, (1, 2))]
    values = [
        *range(group.start, group.start + 2 * 4 * 32, 5)
    ]  # the lengths, then each one's items
    values += [place for end in ends for place in range(end - 4 * group.items[0], end, 7)]
    for place in values:
        file.write_bytes(good[:place] + bytes([good[place] ^ 64]) + good[place + 1 :])
        reader = PackedReader(dataset.columns)
        with pytest.raises(DataError, match="checksum") as caught:
            [reader.read(part) for part in dataset.slices]
        assert caught.value.where["file"] == str(file)
        assert caught.value.where["column"] in ("tags", "prices")


@pytest.mark.parametrize("lengths", [[4, -1, 1], [1, 1, 1], [3, 1, 1], [2**31 - 1, 1, 4]])
@pytest.mark.parametrize("verify", [True, False])
def test_lengths_made_to_mislead_are_refused(
    tmp_path: Path, lengths: list[int], verify: bool, wording: Wording
) -> None:
    file = packed(lists_table([2, 0, 2]), tmp_path)
    metadata = pq.read_metadata(file)
    start = mark_module.mark_of(metadata, str(file)).groups[0].start
    content = bytearray(file.read_bytes())
    content[start : start + 12] = np.array(lengths, np.int32).tobytes()
    file.write_bytes(content)
    reader = PackedReader([ITEMS], verify=verify)
    with wording.raises(DataError) as caught:
        reader.read(RowGroup(str(file), 0, 3))
    assert caught.value.where == {"file": str(file), "row group": 0, "column": "tags"}


def test_more_items_than_a_page_holds_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(writer_module, "MOST_GROUP_ITEMS", 5)
    with wording.raises(OutputError):
        packed(lists_table([2, 4, 0]), tmp_path)


def test_a_column_packed_as_something_else_is_named(tmp_path: Path, wording: Wording) -> None:
    file = packed(lists_table([2, 0, 2]), tmp_path)
    group = RowGroup(str(file), 0, 3)
    with wording.raises(DataError):
        PackedReader([WantedColumn("row", "id", is_list=True)]).read(group)
    with wording.raises(DataError):
        PackedReader([WantedColumn("tags", "id")]).read(group)
    with wording.raises(DataError):
        PackedReader([WantedColumn("prices", "id", is_list=True)]).read(group)
