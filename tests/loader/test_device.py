"""Copies to a device: their order, their number, and who holds what for how long."""

import gc
import threading
import weakref
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from same_batches import assert_same, bits, tensors_of
from streams_on_cpu import CpuStreams
from wording import Wording

from distrain.errors import SpecError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch, Ragged
from distrain.loader.delivery.cuda_streams import resolve_device, thread_set_up
from distrain.loader.delivery.transfer import DeviceDelivery, HostDelivery, move
from distrain.loader.filling.batch_memory import BatchLayout, BlockPool
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.schema import Schema

COLUMNS = [
    WantedColumn("a", "id", 100),
    WantedColumn("b", "id", 100),
    WantedColumn("x", "value"),
    WantedColumn("y", "label"),
    WantedColumn("z", "label"),
    WantedColumn("w", "weight"),
]
LAYOUT = BatchLayout.of(COLUMNS)


def make_batch(pool: BlockPool, num_rows: int = 7, seed: int = 0) -> Batch:
    block = torch.from_numpy(pool.allocate(num_rows))
    generator = torch.Generator().manual_seed(seed)
    block.copy_(torch.randint(0, 2**31 - 1, block.shape, dtype=torch.int32, generator=generator))
    return LAYOUT.batch(block)


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(LAYOUT.num_columns)


@pytest.fixture
def streams() -> CpuStreams:
    return CpuStreams()


def idle_blocks(pool: BlockPool) -> int:
    gc.collect()
    return len(pool._idle)


def test_the_consumers_stream_follows_and_no_thread_waits(
    pool: BlockPool, streams: CpuStreams
) -> None:
    def transform(batch: Batch) -> Batch:
        streams.note("transform")
        return batch

    delivery = DeviceDelivery(streams, [transform])
    item = delivery.prepare(make_batch(pool))
    assert streams.steps() == ["transform", "copy", "mark"]
    batch = delivery.hand_over(item)
    assert streams.steps()[3:] == ["follow"]
    [(event, memory)] = streams.followed
    assert event is streams.events[0]
    assert (event.waits, event.done) == (0, False)
    owned = {tensor.untyped_storage().data_ptr() for tensor in memory}
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors_of(batch)} == owned


@pytest.mark.slow
def test_host_memory_is_held_until_its_copy_is_complete(
    pool: BlockPool, streams: CpuStreams
) -> None:
    delivery = DeviceDelivery(streams)
    items = [delivery.prepare(make_batch(pool))]
    assert idle_blocks(pool) == 0
    streams.events[0].done = True
    items.append(delivery.prepare(make_batch(pool)))
    assert idle_blocks(pool) == 1, "the first copy is complete"
    items.append(delivery.prepare(make_batch(pool)))
    assert idle_blocks(pool) == 0, "that block is in use again, and two copies are under way"
    items.append(delivery.prepare(make_batch(pool)))
    assert [event.waits for event in streams.events[1:]] == [1, 0, 0], "no third copy begins"
    assert idle_blocks(pool) == 1


@pytest.mark.slow
def test_close_waits_for_copies_and_lets_go(pool: BlockPool, streams: CpuStreams) -> None:
    delivery = DeviceDelivery(streams)
    batches = [make_batch(pool) for _ in range(2)]
    for batch in batches:
        delivery.prepare(batch)
    del batch, batches
    assert idle_blocks(pool) == 0
    delivery.close()
    assert all(event.done for event in streams.events)
    assert idle_blocks(pool) == 2
    delivery.close()


def test_what_is_on_the_device_already_is_not_copied_but_followed(streams: CpuStreams) -> None:
    with streams.on_side_stream():
        block = streams.copy(torch.arange(LAYOUT.num_columns * 4, dtype=torch.int32).view(-1, 4))
    batch = LAYOUT.batch(block)
    delivery = DeviceDelivery(streams)
    item = delivery.prepare(batch)
    assert streams.steps() == ["copy", "mark"], "the copy is this test's"
    assert delivery.hand_over(item).categorical is batch.categorical
    assert block.data_ptr() in {tensor.data_ptr() for tensor in streams.followed[0][1]}


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Features:
    ids: torch.Tensor
    names: tuple[str, ...]


def test_any_nesting_goes_over(pool: BlockPool, streams: CpuStreams) -> None:
    batch = make_batch(pool)
    ragged = Ragged(torch.arange(5, dtype=torch.int32), torch.tensor([0, 5], dtype=torch.int32))
    weights = torch.ones(3, requires_grad=True)
    item = {
        "batch": batch,
        "pair": Pair(batch.categorical[:, 0], [ragged, (torch.empty(0), None)]),
        "mine": Features(torch.arange(4), ("a",)),
        "weights": weights,
        "label": batch.label,
        "text": "kept",
    }
    there = DeviceDelivery(streams, [lambda _: item]).prepare(batch).item
    assert_same(there, item)
    assert type(there["pair"]) is Pair
    assert there["mine"].names == ("a",)
    assert there["text"] == "kept"
    assert there["pair"].right[1][1] is None
    assert all(streams.holds(t) for t in tensors_of(there) if t.numel())
    # The block, the list's two tensors, the ids, the weights and the empty tensor.
    assert len(streams.copies) == 6


views = st.tuples(
    st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64]),
    st.integers(0, 40),  # offset
    st.lists(st.integers(0, 4), min_size=0, max_size=3),  # shape
    st.lists(st.integers(0, 9), min_size=3, max_size=3),  # strides
)


@settings(max_examples=50, deadline=None)
@given(layouts=st.lists(views, min_size=1, max_size=5))
def test_views_of_a_block_are_the_same_views_of_its_copy(layouts: list[Any]) -> None:
    raw = torch.randint(0, 256, (4096,), dtype=torch.uint8, generator=torch.manual_seed(0))
    tensors = [
        torch.as_strided(raw.view(dtype), shape, strides[: len(shape)], offset)
        for dtype, offset, shape, strides in layouts
    ]
    streams = CpuStreams()
    with streams.on_side_stream():
        moved = move(tensors, streams)
    for tensor, there in zip(tensors, moved.item, strict=True):
        assert there.shape == tensor.shape
        assert there.dtype == tensor.dtype
        assert bits(there) == bits(tensor)
        if tensor.numel():
            assert not raw.data_ptr() <= there.data_ptr() < raw.data_ptr() + raw.nbytes
    used = sum(tensor.nbytes for tensor in tensors)
    assert sum(copy.nbytes for copy in streams.copies) <= 2 * used + 16
    owned = {memory.untyped_storage().data_ptr() for memory in moved.memory}
    assert {t.untyped_storage().data_ptr() for t in moved.item} <= owned


# The loader with such a delivery.


@pytest.fixture
def dataset(write_table: Any, schema: Schema) -> Dataset:
    return Dataset(write_table([[40, 31], [64, 50]]), schema)


@pytest.fixture
def on_device(streams: CpuStreams, monkeypatch: pytest.MonkeyPatch) -> CpuStreams:
    monkeypatch.setattr(
        "distrain.loader.loader.new_delivery",
        lambda _, transforms: DeviceDelivery(streams, transforms),
    )
    return streams


def test_the_stream_is_the_hosts(dataset: Dataset, on_device: CpuStreams) -> None:
    loader = partial(Loader, dataset, batch_size=32, seed=3)
    there = list(loader())
    assert {thread for step, thread in on_device.log if step == "copy"} == {"loader"}
    followers = {thread for step, thread in on_device.log if step == "follow"}
    assert followers == {threading.current_thread().name}
    assert [event for event, _ in on_device.followed] == on_device.events
    assert len(on_device.copies) == len(there) == 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.loader.loader.new_delivery", lambda _, t: HostDelivery(t))
        for mine, host in zip(there, loader(), strict=True):
            assert_same(mine, host)


def test_a_transforms_error_comes_at_its_batch(
    dataset: Dataset, on_device: CpuStreams, wording: Wording
) -> None:
    seen: list[int] = []

    def fails_at_the_third(batch: Batch) -> Batch:
        seen.append(batch.num_rows)
        if len(seen) == 3:
            raise ValueError("the third")
        return batch

    batches = Loader(dataset, batch_size=32, transforms=[fails_at_the_third]).epoch(0)
    with batches:
        assert [next(batches).num_rows, next(batches).num_rows] == [32, 32]
        for _ in range(2):
            wording.refused(ValueError, lambda: next(batches))
    assert len(on_device.copies) == 2
    assert all(event.done for event in on_device.events), "host memory was let go too early"


@pytest.mark.slow
def test_leaving_early_drops_everything(
    dataset: Dataset, on_device: CpuStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(dataset, batch_size=8, prefetch_batches=3)
    lent = []
    allocate = loader._pool.allocate

    def noting(num_rows: int) -> Any:
        block = allocate(num_rows)
        lent.append(weakref.ref(block))
        return block

    monkeypatch.setattr(loader._pool, "allocate", noting)
    with loader.epoch(0) as batches:
        assert next(batches).num_rows == 8
    assert len(on_device.followed) == 1
    assert len(on_device.copies) < len(loader)
    assert all(event.done for event in on_device.events)
    gc.collect()
    assert len(lent) > 0
    assert [block() for block in lent if block() is not None] == []


def test_every_thread_is_set_up_before_it_works(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(
        "distrain.loader.loader.thread_set_up",
        lambda *_, **__: lambda: names.append(threading.current_thread().name),
    )
    list(Loader(dataset, batch_size=32, decode_threads=2))
    assert names[0] == "loader"
    assert 1 <= len(names[1:]) <= 2
    assert all(name.startswith("decode") for name in names[1:])


# Which device.


@pytest.mark.parametrize("device", ["mps", "nonsense", "cuda", "cuda:1"])
def test_devices_that_are_not_there_are_refused(
    dataset: Dataset, device: str, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SpecError, match=device) as caught:
        Loader(dataset, batch_size=8, device=device)
    wording(str(caught.value).partition(": Expected")[0])  # the rest is torch's


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Four GPUs, the last of which is the current one; and the devices that threads chose."""
    chosen: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def test_a_gpu_without_an_index_is_the_makers_current_one(
    four_gpus: list[Any], wording: Wording
) -> None:
    assert resolve_device("cuda") == torch.device("cuda", 3)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    wording.refused(SpecError, lambda: resolve_device("cuda:4"))


def test_threads_choose_the_loaders_gpu(four_gpus: list[Any]) -> None:
    thread_set_up(torch.device("cuda", 1), pinned=True)()
    thread_set_up(None, pinned=True)()
    thread_set_up(None, pinned=False)()
    assert four_gpus == [torch.device("cuda", 1), 3]
