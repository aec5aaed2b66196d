"""The loader on a GPU: the host's values, in order, without a wait; and what it leaves behind."""

import gc
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from devices import no_waiting

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.delivery.cuda_streams import CudaStreams, resolve_device
from distrain.schema import ColumnSchema, Schema, Tags

HAS_GPU = torch.cuda.is_available()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_GPU, reason="torch finds no NVIDIA GPU"),
]
two_gpus = pytest.mark.skipif(
    HAS_GPU and torch.cuda.device_count() < 2, reason="there is one GPU only"
)
LONG_CYCLES = 50_000_000  # some 30 ms of a GPU's time

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("click", "float32", (Tags.TARGET,)),
        ColumnSchema("weight", "float32", (Tags.WEIGHT,)),
        ColumnSchema("I1", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("I2", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), cardinality=2**25),
        ColumnSchema("C2", "int32", (Tags.CATEGORICAL,), cardinality=1000),
    )
)


def write(folder: Path, num_rows: int = 20_000, **changes: Any) -> Path:
    rows = np.arange(num_rows)
    columns = {
        "label": (rows % 3 == 0).astype(np.float32),
        "click": rows % 2 == 0,
        "weight": rows.astype(np.float64) / 9,
        "I1": rows.astype(np.float32) / 7,
        "I2": -rows,
        "C1": (2**24 + 2 * rows + 1).astype(np.int64),
        "C2": (rows * 7 % 1000).astype(np.int32),
    }
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns | changes), folder / "part.parquet", row_group_size=3_000)
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(write(tmp_path / "table"), SCHEMA)


@pytest.fixture(autouse=True)
def no_memory_is_left() -> Any:
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    yield
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def assert_same(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        for name in ("categorical", "continuous", "labels", "label", "weight"):
            there, here = getattr(a, name), getattr(b, name)
            assert there.device.type == "cuda"
            assert torch.equal(there.cpu(), here)
        assert a.lists.keys() == b.lists.keys()
        for name, lists in b.lists.items():
            for part in ("offsets", "values"):
                there, here = getattr(a.lists[name], part), getattr(lists, part)
                assert (there.device.type, there.dtype) == ("cuda", here.dtype)
                assert torch.equal(there.cpu().view(torch.int32), here.view(torch.int32))


READERS = [
    "arrow",
    pytest.param(
        "cudf",
        marks=pytest.mark.skipif(
            not HAS_GPU or importlib.util.find_spec("pylibcudf") is None,
            reason="cuDF is not installed",
        ),
    ),
]
each_reader = pytest.mark.parametrize("reader", READERS)


@each_reader
@pytest.mark.parametrize("shuffle", ["chunk", "full", "none"])
@pytest.mark.parametrize("batch_size", [100, 7_001])
def test_the_values_are_the_hosts(
    dataset: Dataset, reader: str, shuffle: str, batch_size: int
) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "seed": 3}
    options |= {"parts_per_chunk": 2, "decode_threads": 3}
    host = list(Loader(dataset, **options))
    with Loader(dataset, device="cuda", reader=reader, **options) as loader:
        assert loader.reader_choice.name == reader
        assert_same(list(loader), host)


@each_reader
def test_the_consumers_stream_waits_for_a_late_copy(dataset: Dataset, reader: str) -> None:
    host = list(Loader(dataset, batch_size=4_000))
    device = resolve_device("cuda")
    assert device is not None
    with CudaStreams(device).on_side_stream():
        torch.cuda._sleep(LONG_CYCLES)
    with Loader(dataset, batch_size=4_000, device="cuda", reader=reader) as loader:
        sums = [batch.categorical.sum() for batch in loader]
    assert [s.item() for s in sums] == [batch.categorical.sum().item() for batch in host]


@each_reader
@pytest.mark.parametrize("own_stream", [False, True])
def test_memory_is_not_reused_while_the_consumer_still_has_work_on_it(
    dataset: Dataset, reader: str, own_stream: bool
) -> None:
    host = list(Loader(dataset, batch_size=500, seed=1))
    consumer = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    sums = []
    with (
        torch.cuda.stream(consumer),
        Loader(dataset, batch_size=500, seed=1, device="cuda", reader=reader) as loader,
    ):
        for batch in loader:
            torch.cuda._sleep(LONG_CYCLES // 10)
            sums.append(batch.categorical.sum())
            del batch
    consumer.synchronize()
    assert [s.item() for s in sums] == [batch.categorical.sum().item() for batch in host]


def test_nothing_waits_for_the_gpu(dataset: Dataset) -> None:
    with Loader(dataset, batch_size=1_000, device="cuda", reader="arrow") as loader:
        list(loader)
        with no_waiting("cuda"):
            batches = list(loader)
    assert len(batches) == 20


def test_a_batch_is_one_copy(dataset: Dataset) -> None:
    with Loader(dataset, batch_size=1_000, device="cuda", reader="arrow") as loader:
        activities = [torch.profiler.ProfilerActivity.CUDA]
        # torch 2.11 warns of one that forgets earlier events.
        profiler = torch.profiler.profile(activities=activities, acc_events=True)
        with profiler:
            assert len(list(loader)) == 20
            torch.cuda.synchronize()
    copies = [e for e in profiler.events() if "memcpy htod" in e.name.lower()]
    assert len(copies) == 20
    assert all("pinned" in copy.name.lower() for copy in copies)


@each_reader
def test_transforms_and_leaving_early(dataset: Dataset, reader: str) -> None:
    def transform(batch: Batch) -> dict[str, Any]:
        return {"ids": batch.categorical + 1, "batch": batch}

    host = Loader(dataset, batch_size=1_000).map(transform).sample_batch()
    loader = Loader(dataset, batch_size=1_000, device="cuda", reader=reader).map(transform)
    with loader.epoch(0) as batches:
        item = next(batches)
        assert torch.equal(item["ids"].cpu(), host["ids"])
        assert_same([item["batch"]], [host["batch"]])


cudf_only = pytest.mark.parametrize("reader", READERS[1:])


@cudf_only
@pytest.mark.parametrize(
    "kind", ["bool_", "int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "float64"]
)
def test_cudf_makes_of_types_and_nulls_what_arrow_does(
    tmp_path: Path, reader: str, kind: str
) -> None:
    rows = np.arange(20_000)
    numbers = pa.array(rows % 2, mask=rows % 5 == 1).cast(getattr(pa, kind)())
    ids = pa.array(rows % 90, mask=rows % 7 == 3)
    if kind in ("bool_", "float64"):
        ids = ids.cast(pa.int32()).cast(pa.date32())
    else:
        ids = ids.cast(getattr(pa, kind)())
    folder = write(tmp_path / "table", I2=numbers, C2=ids)
    dataset = Dataset(folder, SCHEMA, fill_null_id=5, fill_null_value=1)
    host = list(Loader(dataset, batch_size=1_000))
    with Loader(dataset, batch_size=1_000, device="cuda", reader=reader) as loader:
        assert_same(list(loader), host)


@cudf_only
@pytest.mark.parametrize(
    "changes",
    [
        {"C2": np.where(np.arange(20_000) == 9_100, 1000, 1)},
        {"label": np.where(np.arange(20_000) == 3, 2, 1)},
        {"I2": np.where(np.arange(20_000) == 10_000, np.nan, 1)},
        {"C2": pa.array(np.ones(20_000, int), mask=np.arange(20_000) == 12_345)},
    ],
    ids=["id", "label", "value", "null"],
)
def test_cudfs_errors_are_arrows(tmp_path: Path, reader: str, changes: dict[str, Any]) -> None:
    path = write(tmp_path / "table", **changes) / "part.parquet"
    # With statistics the footer would tell before a row is read.
    pq.write_table(pq.read_table(path), path, row_group_size=3_000, write_statistics=False)
    messages = []
    for options in ({}, {"device": "cuda", "reader": reader}):
        with (
            pytest.raises(DataError) as caught,
            Loader(Dataset(path.parent, SCHEMA), batch_size=100, **options) as loader,
        ):
            list(loader)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@cudf_only
def test_cudf_must_be_asked_for(dataset: Dataset, reader: str) -> None:
    assert Loader(dataset, batch_size=100, device="cuda").reader_choice.name == "arrow"
    assert (
        Loader(dataset, batch_size=100, device="cuda", reader=reader).reader_choice.name == reader
    )


@two_gpus
@each_reader
def test_the_first_gpu_is_left_alone(dataset: Dataset, tmp_path: Path, reader: str) -> None:
    SCHEMA.save(tmp_path / "schema.pbtxt")
    program = f"""
import torch
from distrain.loader import Dataset, Loader
dataset = Dataset({str(tmp_path / "table")!r}, {str(tmp_path / "schema.pbtxt")!r})
with Loader(dataset, batch_size=100, device="cuda:1", reader={reader!r}) as loader:
    for batch in loader:
        assert batch.categorical.device == torch.device("cuda", 1)
torch.cuda.synchronize(1)
assert torch._C._cuda_hasPrimaryContext(1)
assert not torch._C._cuda_hasPrimaryContext(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
