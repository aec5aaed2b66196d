"""Batches that go to a device with ids in one or two bytes: the bits that arrive, and when."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from same_batches import assert_same, tensors_of
from streams_on_cpu import CpuStreams
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.delivery.transfer import DeviceDelivery
from distrain.loader.filling.batch_memory import NarrowLayout, narrow_layout
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.schema import ColumnSchema, Schema, Tags

COLUMNS = (
    WantedColumn("byte", "id", 256),
    WantedColumn("wide", "id", 65_537),
    WantedColumn("short", "id", 65_536),
    WantedColumn("unknown", "id"),
    WantedColumn("list", "id", 5, is_list=True),
    WantedColumn("bit", "id", 2),
    WantedColumn("x", "value"),
    WantedColumn("y", "label"),
)


SIZES = {"i": 4, "H": 2, "T": 3, "B": 1}


def test_a_layout_keeps_columns_aligned_and_comes_back_bit_by_bit() -> None:
    layout = NarrowLayout(COLUMNS)
    letters, offsets, row_bytes = layout.part(slice(None))
    assert letters == b"BTHiBii"
    assert offsets.tolist() == [17, 14, 12, 0, 18, 4, 8]
    assert row_bytes == layout.row_bytes == 19
    assert layout.part(slice(2, 4))[0] == b"Hi"
    rng = np.random.default_rng(0)
    for rows in (0, 1, 5):
        wide = rng.integers(-(2**31), 2**31, (7, rows)).astype(np.int32)
        for number, letter in enumerate(letters.decode()):
            wide[number] &= {"i": -1, "T": 0xFFFFFF, "H": 0xFFFF, "B": 0xFF}[letter]
        narrow = np.empty(19 * rows, np.uint8)
        for number, letter in enumerate(letters.decode()):
            start = int(offsets[number]) * rows
            lowest = wide[number].view(np.uint8).reshape(rows, 4)[:, : SIZES[letter]]
            narrow[start : start + SIZES[letter] * rows] = lowest.reshape(-1)
        block = layout.widened(torch.from_numpy(narrow), rows)
        assert block.is_contiguous()
        assert np.array_equal(block.numpy(), wide)


def test_where_nothing_is_saved_batches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert narrow_layout(COLUMNS) is not None
    assert narrow_layout([WantedColumn("wide", "id"), WantedColumn("x", "value")]) is None
    monkeypatch.setenv("DISTRAIN_NARROW", "0")
    assert narrow_layout(COLUMNS) is None


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> CpuStreams:
    """A device on the host: the loader takes its batches for such that go to a GPU."""
    streams = CpuStreams()
    monkeypatch.setattr(
        "distrain.loader.loader.new_delivery", lambda _, given: DeviceDelivery(streams, given)
    )
    monkeypatch.setattr(Loader, "_may_be_narrow", lambda self: not self._transforms)
    return streams


@pytest.fixture
def dataset(write_table: Any, schema: Schema) -> Dataset:
    return Dataset(write_table([[40, 31], [64, 50]]), schema)


def test_batches_arrive_as_those_of_the_host_in_fewer_bytes(
    dataset: Dataset, streams: CpuStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for switch in ("1", "0"):
        monkeypatch.setenv("DISTRAIN_NARROW", switch)
        before = len(streams.copies)
        loader = Loader(dataset, batch_size=32, seed=3)
        batches = [batch for epoch in range(2) for batch in loader.epoch(epoch)]
        copied = sum(copy.nbytes for copy in streams.copies[before:])
        found[switch] = (batches, copied)
        assert len(streams.copies) - before == len(batches)
    (there, narrow_bytes), (usual, bytes_) = found["1"], found["0"]
    assert (narrow_bytes, bytes_) == (2 * 185 * 22, 2 * 185 * 24)
    for mine, other in zip(there, usual, strict=True):
        assert_same(mine, other)
    # The consumer's stream is told of the memory that it uses, and of no other.
    _, memory = streams.followed[0]
    used = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(there[0])}
    assert {tensor.untyped_storage().data_ptr() for tensor in memory} == used


def test_transforms_see_batches_as_they_always_are(dataset: Dataset, streams: CpuStreams) -> None:
    seen: list[Batch] = []

    def note(batch: Batch) -> Batch:
        seen.append(batch)
        return batch

    plain = Loader(dataset, batch_size=32, seed=3)
    for batch, mine in zip(plain.epoch(0), plain.map(note).epoch(0), strict=True):
        assert_same(batch, mine)
    assert {batch.categorical.dtype for batch in seen} == {torch.int32}
    assert plain._narrow is not None


def test_an_id_beyond_its_vocabulary_does_not_become_another(
    tmp_path: Path, streams: CpuStreams, wording: Wording
) -> None:
    table = pa.table({"a": pa.array([1, 257, 2], pa.int32())})
    pq.write_table(table, tmp_path / "f.parquet", write_statistics=False)
    schema = Schema((ColumnSchema("a", "int32", (Tags.CATEGORICAL,), cardinality=100),))
    dataset = Dataset(tmp_path, schema, need_label=False)
    loader = Loader(dataset, batch_size=3, lanes=1)
    assert loader._narrow is not None
    with loader:
        wording.refused(DataError, lambda: next(iter(loader)))


def test_only_a_loader_whose_batches_nobody_sees_before_the_device(dataset: Dataset) -> None:
    loader = partial(Loader, dataset, batch_size=32)
    assert loader()._narrow is None  # on the host
    for options, expected in (({}, True), ({"shuffle": "full"}, False)):
        on_gpu = loader(**options)
        on_gpu._streams = CpuStreams()  # type: ignore[assignment]
        assert on_gpu._may_be_narrow() is expected
        on_gpu._transforms = (lambda batch: batch,)
        assert not on_gpu._may_be_narrow()
