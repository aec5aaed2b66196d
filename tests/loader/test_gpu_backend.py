"""The reader by cuDF without cuDF: what is ours of it, on the host."""

import importlib.util
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cudf_on_cpu import pylibcudf
from hypothesis import HealthCheck, given, settings, strategies as st
from streams_on_cpu import CpuStreams

from distrain.batch import Batch
from distrain.errors import DataError, SpecError
from distrain.loader import Dataset, Loader, cudf_reader
from distrain.loader.cudf_reader import null_rows, set_up_pool
from distrain.loader.delivery.transfer import DeviceDelivery
from distrain.loader.gpu_backend import GpuBackend
from distrain.loader.reader_choice import choose_reader
from distrain.partition import Table, read_footers
from distrain.partition.wanted_columns import WantedColumn, wanted_columns
from distrain.schema import ColumnSchema, Schema, Tags

SIZES = [[40, 31, 64, 50]]


@pytest.fixture
def with_cudf(monkeypatch: pytest.MonkeyPatch) -> CpuStreams:
    """Loaders read with `GpuBackend`, on a device that the host plays."""
    streams = CpuStreams()

    def backend(_: str, __: Any, dataset: Dataset, ___: Any, stats: Any, **more: Any) -> Any:
        return GpuBackend(
            dataset.columns,
            torch.device("cpu"),
            streams,  # type: ignore[arg-type]
            stats,
            0.1,
            footers=more["footers"],
            list_limits=more["list_limits"],
        )

    def delivery(_: Any, transforms: Any) -> DeviceDelivery:
        return DeviceDelivery(streams, transforms)

    monkeypatch.setitem(sys.modules, "pylibcudf", pylibcudf)
    monkeypatch.setattr("distrain.loader.gpu_backend.set_up_pool", lambda *_: None)
    monkeypatch.setattr("distrain.loader.cudf_reader._StreamHandle", lambda _: _NoStream())
    monkeypatch.setattr("distrain.loader.loader.new_backend", backend)
    monkeypatch.setattr("distrain.loader.loader.new_delivery", delivery)
    monkeypatch.setattr(streams, "holds", lambda _: True)
    return streams


class _NoStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


def assert_same(left: list[Batch], right: list[Batch]) -> None:
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.categorical, b.categorical)
        assert torch.equal(a.continuous, b.continuous)
        assert a.label is not None
        assert b.label is not None
        assert torch.equal(a.label, b.label)
        assert_same_lists(a, b)


def assert_same_lists(a: Batch, b: Batch) -> None:
    assert a.lists.keys() == b.lists.keys()
    for name, column in a.lists.items():
        other = b.lists[name]
        assert (column.values.dtype, column.offsets.dtype) == (other.values.dtype, torch.int32)
        assert torch.equal(column.offsets, other.offsets)
        assert torch.equal(column.values.view(torch.int32), other.values.view(torch.int32))


def batches_by_arrow(dataset: Dataset, **options: Any) -> list[Batch]:
    with pytest.MonkeyPatch.context() as patch:
        from distrain.loader.delivery import new_delivery
        from distrain.loader.reader_choice import new_backend

        patch.setattr("distrain.loader.loader.new_backend", new_backend)
        patch.setattr("distrain.loader.loader.new_delivery", new_delivery)
        return list(Loader(dataset, **options))


@pytest.mark.parametrize("large_rows", [131_072, 24])
@pytest.mark.parametrize("shuffle", ["chunk", "full", "none"])
def test_batches_are_those_of_arrow(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, monkeypatch: pytest.MonkeyPatch,
    shuffle: str, large_rows: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large_rows)
    # Not for the reader cudf, which is another's name here.
    monkeypatch.setattr("distrain.loader.loader.use_buckets", lambda *_: False)
    dataset = Dataset(write_table(SIZES), schema)
    for rank in range(2):
        options: dict[str, Any] = {"batch_size": 16, "shuffle": shuffle, "seed": 5}
        options |= {"lanes": 4, "rank": rank, "num_ranks": 2, "parts_per_chunk": 2}
        loader = Loader(dataset, **options)
        assert_same(list(loader), batches_by_arrow(dataset, **options))
    assert with_cudf.copies == [], "rows did not pass through the host"


@pytest.mark.usefixtures("with_cudf")
def test_a_footer_is_parsed_once_for_all_epochs(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Any] = []

    class Counted(cudf_reader.CudfFooter):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            parsed.append(args)

    monkeypatch.setattr(cudf_reader, "CudfFooter", Counted)
    loader = Loader(Dataset(write_table(SIZES), schema), batch_size=16, decode_threads=1)
    for epoch in range(3):
        with loader.epoch(epoch) as batches:
            assert len(list(batches)) == loader.num_steps
    assert len(parsed) == len(SIZES)


@pytest.mark.parametrize("kind", ["int8", "uint16", "uint32", "int64", "uint64", "float64", "bool"])
def test_types_and_nulls_become_what_arrow_makes_of_them(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, kind: str
) -> None:
    numbers = np.arange(185) % 2
    present = pa.array(numbers, mask=numbers == 1).cast(
        getattr(pa, kind.replace("bool", "bool_"))()
    )
    ids = pa.array(np.arange(185) % 90, mask=np.arange(185) % 7 == 3)
    ids = ids.cast(pa.int64() if kind in ("float64", "bool") else getattr(pa, kind)())
    folder = write_table(SIZES, I1=present, C2=ids)
    dataset = Dataset(folder, schema, fill_null_id=5, fill_null_value=1)
    loader = Loader(dataset, batch_size=16)
    assert_same(list(loader), batches_by_arrow(dataset, batch_size=16))


def test_dates_count_days(write_table: Any, schema: Schema, with_cudf: CpuStreams) -> None:
    days = pa.array(np.arange(185, dtype=np.int32)).cast(pa.date32())
    dataset = Dataset(write_table(SIZES, C2=days), schema)
    assert_same(list(Loader(dataset, batch_size=16)), batches_by_arrow(dataset, batch_size=16))


def test_statistics(write_table: Any, schema: Schema, with_cudf: CpuStreams) -> None:
    folder = write_table(SIZES)
    loader = Loader(Dataset(folder, schema), batch_size=16)
    list(loader)
    wanted = {"label", "I1", "I2", "C1", "C2", "C3"}
    size_bytes = 0
    for file in Path(folder).glob("*.parquet"):
        footer = pq.read_metadata(file)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            size_bytes += sum(
                c.total_compressed_size for c in columns if c.path_in_schema in wanted
            )
    assert (loader.stats.row_groups, loader.stats.bytes_read) == (4, size_bytes)


TAGS = ColumnSchema("tags", tags=(Tags.CATEGORICAL,), cardinality=1000, is_list=True)
PRICES = ColumnSchema("prices", tags=(Tags.CONTINUOUS,), is_list=True)
SHAPES = {"list": pa.list_, "large": pa.large_list, "fixed": lambda item: pa.list_(item, 2)}
WRITABLE = sorted(SHAPES)
if pa.__version__.startswith("19."):  # it writes no nulls among lists of one length
    WRITABLE.remove("fixed")


def lists_of(rng: np.random.Generator, shape: str, kind: str, holes: float) -> pa.Array:
    """185 lists of whole numbers below 100, of which some, and some of whose items, are null."""

    def number() -> int | None:
        return None if rng.random() < holes else int(rng.integers(2 if kind == "bool_" else 100))

    def row() -> list[int | None] | None:
        if rng.random() < holes:
            return None
        return [number() for _ in range(2 if shape == "fixed" else rng.choice([0, 0, 1, 2, 9]))]

    item = pa.int32() if kind in ("bool_", "date32") else getattr(pa, kind)()
    rows = pa.array([row() for _ in range(185)], SHAPES[shape](item))
    return rows.cast(SHAPES[shape](getattr(pa, kind)()))


@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from(WRITABLE),
    kinds=st.sampled_from(
        [("int32", "float64"), ("int8", "uint64"), ("uint16", "float32"), ("date32", "bool_"),
         ("uint32", "int16"), ("uint64", "date32")]
    ),
    holes=st.sampled_from([0, 0.1]),
    large_rows=st.sampled_from([131_072, 24]),
    share=st.sampled_from([0.4, 1]),
    options=st.fixed_dictionaries({
        "shuffle": st.sampled_from(["chunk", "full", "none"]),
        "parts_per_chunk": st.integers(1, 3),
        "batch_size": st.sampled_from([7, 60]),
        "rank": st.sampled_from([0, 2]),
            "num_ranks": st.just(3),
        "max_list_length": st.sampled_from([None, {"tags": 2}, {"tags": 1, "prices": 3}]),
    }),
)  # fmt: skip
def test_lists_are_those_of_arrow(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, monkeypatch: pytest.MonkeyPatch,
    seed: int, shape: str, kinds: tuple[str, str], holes: float, large_rows: int, share: float,
    options: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large_rows)
    rng = np.random.default_rng(seed)
    tags, prices = (lists_of(rng, shape, kind, holes) for kind in kinds)
    folder = write_table(SIZES, tags=tags, prices=prices)
    fills = {"fill_null_id": 300, "fill_null_value": -0.5} if holes else {}
    dataset = Dataset(folder, Schema((*schema.columns, TAGS, PRICES)), **fills)
    if share < 1:
        dataset = some_of(dataset, rng.random(185) < share, **fills)
    loader = Loader(dataset, lanes=6, decode_threads=2, **options)
    assert_same(list(loader), batches_by_arrow(dataset, lanes=6, decode_threads=2, **options))
    assert with_cudf.copies == [], "rows did not pass through the host"


def some_of(dataset: Dataset, is_taken: np.ndarray, **fills: Any) -> Dataset:
    ends = np.cumsum([group.num_rows for group in dataset.table.row_groups])[:-1]
    parts = zip(dataset.table.row_groups, np.split(is_taken, ends), strict=True)
    groups = [group.taking(part) for group, part in parts]
    return Dataset.of(Table([group for group in groups if group], "some"), dataset.schema, **fills)


@pytest.mark.parametrize("large_rows", [131_072, 24])
def test_nulls_of_rows_that_are_left_out_do_not_matter(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, monkeypatch: pytest.MonkeyPatch,
    large_rows: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large_rows)
    is_taken = np.arange(185) % 3 != 1
    tags = [None if row % 3 == 1 else [row] * (row % 4) for row in range(185)]
    ids = pa.array(np.arange(185), mask=~is_taken)
    folder = write_table(SIZES, C2=ids, tags=pa.array(tags, pa.list_(pa.int32())))
    whole = Dataset(folder, Schema((*schema.columns, TAGS)))
    some = some_of(whole, is_taken)
    assert_same(list(Loader(some, batch_size=16)), batches_by_arrow(some, batch_size=16))
    is_taken[100] = True
    error = error_of(some_of(whole, is_taken))
    assert (error.where["row group"], error.where["row in the group"]) == (2, 29)


def test_lists_that_are_all_empty(write_table: Any, schema: Schema, with_cudf: CpuStreams) -> None:
    tags = pa.array([[]] * 185, pa.list_(pa.int32()))
    dataset = Dataset(write_table(SIZES, tags=tags), Schema((*schema.columns, TAGS)))
    batches = list(Loader(dataset, batch_size=16))
    assert_same(batches, batches_by_arrow(dataset, batch_size=16))
    assert all(len(batch.lists["tags"].values) == 0 for batch in batches)


@pytest.mark.parametrize(
    "bad",
    [[1, 1000], [-1], [1, None], None, [1, 2, 3, 4]],
    ids=["id too large", "id below 0", "null inside", "null", "too long"],
)
def test_errors_in_lists_are_those_of_arrow(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, bad: list[int | None] | None
) -> None:
    rows = [bad if row in (100, 150) else [row] * (row % 3) for row in range(185)]
    folder = write_table(SIZES, tags=pa.array(rows, pa.list_(pa.int64())))
    dataset = Dataset(folder, Schema((*schema.columns, replace(TAGS, value_count=(0, 3)))))
    error = error_of(dataset)
    with pytest.raises(DataError) as caught:
        batches_by_arrow(dataset, batch_size=16, shuffle="none", lanes=1)
    assert (str(error), error.where) == (str(caught.value), caught.value.where)
    assert error.where["column"] == "tags"


def error_of(dataset: Dataset) -> DataError:
    with pytest.raises(DataError) as caught:
        list(Loader(dataset, batch_size=16, shuffle="none", lanes=1))
    return caught.value


@pytest.mark.parametrize(
    "changes",
    [
        {"C2": np.where(np.arange(185) == 100, 1000, 1)},
        {"C1": np.where(np.arange(185) == 150, -(2**40), 1)},
        {"label": np.where(np.arange(185) == 3, 2, 1)},
        {"I2": np.where(np.arange(185) == 100, np.nan, 1)},
        {"C2": pa.array(np.ones(185, int), mask=np.arange(185) == 120)},
    ],
    ids=["id too large", "id below 0", "label", "value", "null"],
)
def test_errors_are_those_of_arrow(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, changes: dict[str, Any]
) -> None:
    dataset = Dataset(write_table(SIZES, **changes), schema)
    error = error_of(dataset)
    with pytest.raises(DataError) as caught:
        batches_by_arrow(dataset, batch_size=16, shuffle="none", lanes=1)
    assert str(error) == str(caught.value)
    assert {"file", "row group", "row in the group", "column"} <= set(error.where)


def test_a_file_that_changed_is_named(
    write_table: Any, schema: Schema, with_cudf: CpuStreams
) -> None:
    folder = write_table(SIZES)
    dataset = Dataset(folder, schema)
    part = Path(folder) / "part_0.parquet"
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 30), part)
    assert "the row group has 30 rows, not 40 as planned" in str(error_of(dataset))
    pq.write_table(table.drop(["C2"]), part, row_group_size=40)
    assert "column 'C2' is missing" in str(error_of(dataset))
    text = pa.array(["1"] * 185)
    pq.write_table(table.drop(["C2"]).append_column("C2", text), part, row_group_size=40)
    assert "STRING" in str(error_of(dataset))
    part.write_bytes(b"PAR1 and no more")
    assert "could not read a row group" in str(error_of(dataset))
    part.unlink()
    error = error_of(dataset)
    assert "could not read a row group" in str(error)
    assert error.where == {"file": str(part), "row group": 0}


def test_too_little_memory_says_what_to_do(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any, **__: Any) -> Any:
        raise MemoryError("std::bad_alloc: out_of_memory: maximum pool size exceeded")

    monkeypatch.setattr(pylibcudf.io.parquet, "read_parquet", no_room)
    error = error_of(Dataset(write_table(SIZES), schema))
    assert "maximum pool size exceeded" in str(error)
    assert "gpu_memory_fraction" in str(error.hint)


@settings(max_examples=30)
@given(valid=st.lists(st.booleans(), min_size=1, max_size=40), padding=st.binary(max_size=8))
def test_null_masks(valid: list[bool], padding: bytes) -> None:
    raw = np.packbits(valid, bitorder="little").tobytes() + padding
    mask = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    assert null_rows(mask, len(valid)).tolist() == [not bit for bit in valid]


class Resources:
    """The part of `rmm.mr` that sets up a pool."""

    class CudaMemoryResource:
        pass

    class PoolMemoryResource:
        def __init__(self, upstream: Any, initial_pool_size: int, maximum_pool_size: int):
            self.sizes = (initial_pool_size, maximum_pool_size)

    def __init__(self) -> None:
        self.current: dict[int, Any] = {}

    def get_per_device_resource(self, device: int) -> Any:
        return self.current.setdefault(device, self.CudaMemoryResource())

    def set_per_device_resource(self, device: int, resource: Any) -> None:
        self.current[device] = resource


def test_one_pool_for_a_process_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = Resources()
    monkeypatch.setitem(sys.modules, "rmm.mr", resources)
    gpu = type("Properties", (), {"total_memory": 10_000_000})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    set_up_pool(torch.device("cuda", 1), 0.1)
    pool = resources.current[1]
    assert pool.sizes == (249_856, 999_936), "multiples of 256 bytes"
    set_up_pool(torch.device("cuda", 1), 0.5)
    assert resources.current == {1: pool}
    set_up_pool(torch.device("cuda", 0), 0.1)
    assert resources.current[0] is not pool


# Who is chosen.


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_spec(name: str) -> Any:
        return object() if name in ("pylibcudf", "rmm") else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.fixture
def table(write_table: Any, schema: Schema) -> Table:
    return read_footers(write_table(SIZES), schema)


@pytest.fixture
def columns(schema: Schema) -> tuple[WantedColumn, ...]:
    return wanted_columns(schema, need_label=True)


@pytest.mark.usefixtures("installed")
def test_cudf_must_be_asked_for(table: Table, columns: tuple[WantedColumn, ...]) -> None:
    assert choose_reader("auto", table, columns, "cuda").name == "arrow"
    assert choose_reader("cudf", table, columns, "cuda").name == "cudf"
    assert choose_reader("auto", table, columns, "cpu").name == "arrow"
    with pytest.raises(SpecError, match="the cache keeps what Arrow decodes"):
        choose_reader("cudf", table, columns, "cuda", has_cache=True)


def test_without_cudf_it_is_refused(
    table: Table, columns: tuple[WantedColumn, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SpecError, match="cuDF is not installed"):
        choose_reader("cudf", table, columns, "cuda")


@pytest.mark.usefixtures("installed")
def test_lists_are_read_by_cudf_where_their_items_are_known_to_be_the_same(
    write_table: Any, schema: Schema
) -> None:
    schema = Schema((*schema.columns, PRICES))
    columns = wanted_columns(schema, need_label=True)
    for kind in (pa.large_list(pa.float32()), pa.list_(pa.float32(), 1)):
        prices = pa.array([[1.0]] * 185, kind)
        table = read_footers(write_table(SIZES, prices=prices), schema)
        assert choose_reader("cudf", table, columns, "cuda").name == "cudf"
    halves = pa.array([[np.float16(1)]] * 185, pa.list_(pa.float16()))
    table = read_footers(write_table(SIZES, prices=halves), schema)
    with pytest.raises(SpecError, match=r"'prices' holds list.*halffloat.*which is not known"):
        choose_reader("cudf", table, columns, "cuda")


@pytest.mark.usefixtures("installed")
def test_what_cudf_reads_differently_is_left_to_arrow(
    write_table: Any, schema: Schema, columns: tuple[WantedColumn, ...]
) -> None:
    table = read_footers(write_table(SIZES, I2=np.ones(185, np.float16)), schema)
    with pytest.raises(SpecError, match="'I2' holds halffloat, which is not known to be the same"):
        choose_reader("cudf", table, columns, "cuda")
    dots = (*columns, WantedColumn("user.id", "id"))
    choose = partial(choose_reader, "cudf", device_type="cuda")
    with pytest.raises(SpecError, match="a name with a dot"):
        choose(table=table, columns=dots)
