"""The cuDF reader on a stand-in for cuDF: it gives what Arrow gives. It has not run on cuDF yet."""

import sys
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cudf_on_cpu import pylibcudf
from hypothesis import HealthCheck, given, settings, strategies as st
from same_batches import assert_same
from streams_on_cpu import CpuStreams

from distrain.errors import DataError
from distrain.jobs.spec.data import RowsSpec
from distrain.loader import Dataset, Loader
from distrain.loader.backends import GpuBackend, new_backend, new_source
from distrain.loader.batch import Batch
from distrain.loader.cudf_reader import CudfReader
from distrain.loader.delivery.transfer import DeviceDelivery, new_delivery
from distrain.loader.partition.table import Table
from distrain.loader.reading.source import Source
from distrain.schema import Schema

SIZES = [[40, 31, 64, 50]]


@pytest.fixture
def with_cudf(monkeypatch: pytest.MonkeyPatch) -> CpuStreams:
    """Loaders read with `GpuBackend`, on a device that the host plays."""
    streams = CpuStreams()

    def source(_: Any, dataset: Dataset, *__: Any, **___: Any) -> Source:
        found: Any = streams
        new = partial(CudfReader, dataset.columns, found, open_groups=4)
        return Source(dataset.columns, new, 0.0)

    def backend(
        _: Any, source: Source, dataset: Dataset, __: Any, stats: Any, **___: Any
    ) -> GpuBackend:
        found: Any = streams
        return GpuBackend(dataset.columns, source.open(), found, stats)

    def delivery(_: Any, transforms: Any) -> DeviceDelivery:
        return DeviceDelivery(streams, transforms)

    monkeypatch.setitem(sys.modules, "pylibcudf", pylibcudf)
    monkeypatch.setattr("distrain.loader.cudf_reader._StreamHandle", lambda _: _NoStream())
    monkeypatch.setattr("distrain.loader.loader.new_source", source)
    monkeypatch.setattr("distrain.loader.loader.new_backend", backend)
    monkeypatch.setattr("distrain.loader.loader.new_delivery", delivery)
    monkeypatch.setattr(streams, "holds", lambda _: True)
    return streams


class _NoStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


def by_arrow(dataset: Dataset, **options: Any) -> list[Batch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.loader.loader.new_source", new_source)
        patch.setattr("distrain.loader.loader.new_backend", new_backend)
        patch.setattr("distrain.loader.loader.new_delivery", new_delivery)
        return list(Loader(dataset, **options))


def flat(rng: np.random.Generator, kind: str, holes: float) -> pa.Array:
    """185 numbers below 100 (of booleans: 2), of which some are null."""
    numbers = rng.integers(2 if kind == "bool_" else 100, size=185).astype(np.int32)
    return pa.array(numbers, mask=rng.random(185) < holes).cast(getattr(pa, kind)())


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**31),
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
    }),
)  # fmt: skip
def test_batches_are_those_of_arrow(
    write_table: Any, schema: Schema, with_cudf: CpuStreams, monkeypatch: pytest.MonkeyPatch,
    seed: int, kinds: tuple[str, str], holes: float, large_rows: int, share: float,
    options: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large_rows)
    # Not for the reader cudf, which is another's name here.
    monkeypatch.setattr("distrain.loader.loader.use_buckets", lambda *_: False)
    rng = np.random.default_rng(seed)
    ids, numbers = (flat(rng, kind, holes) for kind in kinds)
    folder = write_table(SIZES, C2=ids, I1=numbers)
    fills = {"fill_null_id": 300, "fill_null_value": -0.5} if holes else {}
    dataset = Dataset(folder, schema, **fills)
    if share < 1:
        dataset = some_of(dataset, rng.random(185) < share, **fills)
    options |= {"lanes": 6, "decode_threads": 2}
    assert_same(list(Loader(dataset, **options)), by_arrow(dataset, **options))
    assert with_cudf.copies == [], "rows did not pass through the host"


def some_of(dataset: Dataset, is_taken: np.ndarray, **fills: Any) -> Dataset:
    ends = np.cumsum([group.num_rows for group in dataset.table.row_groups])[:-1]
    parts = zip(dataset.table.row_groups, np.split(is_taken, ends), strict=True)
    groups = [group.taking(part) for group, part in parts]
    taken = Table([group for group in groups if group], "some")
    return Dataset.of(taken, dataset.schema, RowsSpec(**fills))


@pytest.mark.usefixtures("with_cudf")
def test_errors_are_those_of_arrow(write_table: Any, schema: Schema) -> None:
    def at_100(bad: Any) -> list[Any]:
        return [bad if row == 100 else 1 for row in range(185)]

    cases: list[tuple[str, Any]] = [
        ("C2", at_100(1000)), ("C1", at_100(-(2**40))), ("label", at_100(2)), ("C2", at_100(None)),
        ("I2", at_100(np.nan)),
    ]  # fmt: skip
    options: dict[str, Any] = {"batch_size": 16, "shuffle": "none", "lanes": 1}
    for column, values in cases:
        dataset = Dataset(write_table(SIZES, **{column: values}), schema)
        with pytest.raises(DataError) as caught:
            list(Loader(dataset, **options))
        with pytest.raises(DataError) as expected:
            by_arrow(dataset, **options)
        assert caught.value.where == expected.value.where, (column, values)
        assert caught.value.where["column"] == column
        assert str(caught.value) == str(expected.value)
