"""Large row groups in slices: decoded once, the same batches by all readers, the same errors."""

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from same_batches import assert_same
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.parquet_pages.leaves import BUILT, page_columns
from distrain.loader.parquet_pages.pages_of_file import PagesOfFile
from distrain.loader.partition.slices import LARGE_ROWS, Slices
from distrain.loader.reading import slice_streams
from distrain.loader.reading.arrow import ArrowReader
from distrain.schema import ColumnSchema, Schema, Tags

SIZES = [[90, 61], [20, 70]]
LARGE = 24  # so slices of at most 6 rows; the third row group is none


@pytest.fixture
def few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of four columns, as slices of many rows have them."""
    monkeypatch.setattr("distrain.loader.reading.arrow._CELLS_OF_A_SLICE", 0)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch, few_columns: None) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", LARGE)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch, few_columns: None) -> Counter[str]:
    """Counts streams that were opened, and slices that they decoded."""
    counts: Counter[str] = Counter()
    opened, decode = slice_streams.SliceStream.__init__, slice_streams.SliceStream._decode_next

    def counted_open(self: Any, *args: Any) -> None:
        counts["opened"] += 1
        opened(self, *args)

    def counted_decode(self: Any) -> Any:
        counts["decoded"] += 1
        return decode(self)

    monkeypatch.setattr(slice_streams.SliceStream, "__init__", counted_open)
    monkeypatch.setattr(slice_streams.SliceStream, "_decode_next", counted_decode)
    return counts


def batches(dataset: Dataset, epoch: int = 0, **options: Any) -> list[Batch]:
    with (
        Loader(dataset, **{"batch_size": 16, "lanes": 6, "seed": 3, **options}) as loader,
        loader.epoch(epoch) as found,
    ):
        return list(found)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("shuffle", ["chunk", "full", "none"])
def test_each_slice_is_decoded_once(
    write_table: Any, schema: Schema, decoded: Counter[str], threads: int, shuffle: str
) -> None:
    dataset = Dataset(write_table(SIZES), schema)
    num_slices = sum(one.slice is not None for one in dataset.slices)
    assert num_slices == sum(-(-rows // 6) for rows in (90, 61, 70))
    for epoch in range(2):
        decoded.clear()
        found = batches(dataset, epoch, decode_threads=threads, shuffle=shuffle)
        rows = sorted(row for batch in found for row in batch["C3"].tolist())
        assert rows == list(range(241))
        parts = 2  # of the schema's six columns, five at a time
        assert decoded == {"opened": 3 * parts, "decoded": num_slices * parts}


@pytest.mark.usefixtures("small_slices")
def test_a_full_shuffle_has_the_order_that_it_has_without_slices(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_table(SIZES)
    sliced = batches(Dataset(folder, schema), shuffle="full")
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", LARGE_ROWS)
    assert_same(sliced, batches(Dataset(folder, schema), shuffle="full"))


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("value", [None, -1])
def test_an_error_names_the_row_of_the_row_group(
    write_table: Any, schema: Schema, value: int | None, wording: Wording
) -> None:
    ids = [1] * 90
    ids[52] = value  # type: ignore[call-overload]
    folder = write_table([[90]], C1=pa.array(ids, pa.int64()))
    caught = wording.refused(DataError, lambda: batches(Dataset(folder, schema)))
    where = {"row group": 0, "row in the group": 52, "column": "C1"}
    assert caught.where.items() >= where.items()


@pytest.mark.usefixtures("small_slices")
def test_a_file_that_is_replaced_between_two_slices_is_refused(
    write_table: Any, schema: Schema, tmp_path: Path, wording: Wording
) -> None:
    dataset = Dataset(write_table([[90]]), schema)
    options: dict[str, Any] = {"batch_size": 2, "lanes": 1, "shuffle": "none"}
    with Loader(dataset, decode_threads=1, prefetch_batches=1, **options) as loader:
        stream = iter(loader)
        next(stream)
        file = tmp_path / "part_0.parquet"
        copy = tmp_path / "copy"
        copy.write_bytes(file.read_bytes())
        copy.rename(file)
        wording.refused(DataError, lambda: list(stream))


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("fails_at", [2, 9])
def test_a_slice_is_read_again_where_the_storage_did_not_answer(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    dataset = Dataset(write_table(SIZES), schema)
    expected = batches(dataset)
    decode = slice_streams.SliceStream._decode_next
    calls = 0

    def flaky(self: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise TimeoutError(110, "timed out")
        return decode(self)

    monkeypatch.setattr(slice_streams.SliceStream, "_decode_next", flaky)
    monkeypatch.setattr("distrain.storage.retrying.FIRST_PAUSE_S", 0.001)
    assert_same(batches(dataset, decode_threads=1, retry_s=60), expected)
    assert calls > fails_at


@pytest.mark.usefixtures("small_slices")
def test_columns_that_stay_open_are_bounded(write_table: Any, schema: Schema) -> None:
    dataset = Dataset(write_table([[30]] * 9), schema)
    reader = ArrowReader(dataset.columns, open_groups=2, threads=1)
    for one in dataset.slices:
        if one.slice is not None and one.slice.number == 0:
            list(reader.read(one, dataset.columns))
            assert len(reader._streams._streams) <= 2 * (2 + 1)
    reader.close()
    assert not reader._streams._streams


BIG = Schema(
    (
        ColumnSchema("row", tags=(Tags.CATEGORICAL,)),
        ColumnSchema("x", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("y", tags=(Tags.TARGET,)),
    )
)


@pytest.fixture(scope="module")
def a_million_rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("large")
    rows = np.arange(1_000_000, dtype=np.int32)
    columns = {"row": rows, "x": (rows % 1000).astype(np.float32), "y": (rows % 2).astype("f4")}
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=1_000_000)
    return str(folder)


def test_a_row_group_of_a_million_rows(a_million_rows: str) -> None:
    dataset = Dataset(a_million_rows, BIG)
    assert dataset.slices.rows.tolist() == [32_259] * 30 + [32_230]
    with Loader(dataset, batch_size=65_536, prefetch_batches=1, decode_threads=1) as loader:
        with loader.epoch(0) as found:
            first = next(found)
            seen = [first["row"].numpy().copy()]
            # The first batch has rows of twelve slices, and one batch is made ahead.
            assert loader.stats.row_groups < 31
            seen += [batch["row"].numpy().copy() for batch in found]
        rows = np.concatenate(seen)
        assert len(rows) == 1_000_000
        assert (np.sort(rows) == np.arange(1_000_000)).all()
        assert abs(np.corrcoef(rows, np.arange(1_000_000))[0, 1]) < 0.999
        with loader.epoch(0, start_step=9) as found:
            assert (next(found)["row"].numpy() == seen[9]).all()
        memory = loader.memory
        assert memory.decode_bytes < 32_259 * 3 * 8 + 1
        assert memory.streams_bytes > 0


def test_a_slice_waits_for_its_thread_however_late_that_is(
    write_table: Any, schema: Schema, decoded: Counter[str]
) -> None:
    dataset = Dataset(write_table([[90]]), schema)
    slices = Slices(dataset.table.compact, LARGE)
    reader = ArrowReader(dataset.columns, open_groups=1, threads=4)
    columns = dataset.columns
    numbers = [column.name for column in columns].index("C3")
    for place in (3, 0, 4, 5, 6, 8, 9, 10, 11, 12, 1, 2, 7, 13, 14):  # 1, 2 and 7 are late
        parts = reader.read(slices[place], columns)
        found = [cells for part in parts for cells in part.cells][numbers]
        assert found.tolist() == list(range(6 * place, 6 * place + 6))
    assert decoded == {"opened": 2, "decoded": 2 * 15}  # of four columns, and of two
    assert not reader._streams._streams
    reader.close()


def with_small_pages(folder: str, compression: str = "snappy") -> Path:
    """The file `part_0` anew, as one row group whose pages hold 8 rows each."""
    path = Path(folder) / "part_0.parquet"
    pq.write_table(
        pq.read_table(path), path, write_statistics=False, data_page_size=8, write_batch_size=8,
        write_page_checksum=True, compression=compression,
    )  # fmt: skip
    return path


@pytest.mark.skipif(not BUILT, reason="distrain was built without a compiler")
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(
    ("threads", "codec", "expected"),
    [
        (1, "zstd", ["['C1', 'C2', 'C3', 'I1', 0]", "['I2', 'label', 0]"]),
        (3, "snappy", []),
    ],
)
def test_pages_below_arrow_give_the_same_slices_also_where_arrow_takes_over(
    write_table: Any,
    schema: Schema,
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    codec: str,
    expected: list[str],
) -> None:
    ids = pa.array([None if row in (52, 77) else row for row in range(90)], pa.int32())
    others = pa.array([None if row == 89 else row % 5 for row in range(90)], pa.int32())
    file = with_small_pages(write_table([[90]], C1=ids, C2=others), codec)
    dataset = Dataset(file, schema, fill_null_id=3)
    began: list[list[str]] = []
    begin = slice_streams.SliceStream._begin

    def noted(self: Any, names: list[str]) -> Any:
        began.append([*names, self.following])
        return begin(self, names)

    monkeypatch.setattr(slice_streams.SliceStream, "_begin", noted)
    found = batches(dataset, decode_threads=threads)
    assert sorted(map(str, began)) == expected
    monkeypatch.setenv("DISTRAIN_PAGES", "0")
    assert_same(batches(dataset, decode_threads=threads), found)
    assert len(began) == len(expected) + 2  # now Arrow decodes all columns, in two streams


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("pages", ["0", "1"])
def test_a_damaged_page_behind_good_slices_is_told_with_its_column(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, pages: str
) -> None:
    monkeypatch.setenv("DISTRAIN_PAGES", pages)
    path = with_small_pages(write_table([[90]]))
    chunk = pq.read_metadata(path).row_group(0).column(1)  # I1
    content = bytearray(path.read_bytes())
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 2] ^= 1  # its last page
    path.write_bytes(content)
    with Loader(Dataset(path, schema), batch_size=6, lanes=1, shuffle="none") as loader:
        with pytest.raises(DataError, match="part_0") as caught:
            list(loader)
        assert caught.value.where["column"] == "I1"
        assert loader.stats.batches >= 1


@pytest.mark.skipif(not BUILT, reason="distrain was built without a compiler")
def test_a_stream_of_pages_does_not_hold_the_column_chunk(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = np.arange(400_000)
    pq.write_table(pa.table({"a": rows}), path, use_dictionary=False, compression="none",
                   data_page_size=32 << 10)  # fmt: skip
    with pq.ParquetFile(path) as parquet:
        pages = PagesOfFile(str(path), page_columns(parquet, ["a"]))
        tracemalloc.start()
        column = pages.open(0, 400_000, "a")
        assert column is not None
        values = column.read(1_000)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (values == rows[:1_000]).all()
        assert held < rows.nbytes / 20
        pages.close()
