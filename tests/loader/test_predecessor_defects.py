"""Ten defects of the loader that this one follows (merlin-dataloader 23.8), one test for each."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from distrain.batch import Batch
from distrain.loader import Dataset, Loader
from distrain.loader.cpu_backend import CpuBackend
from distrain.loader.delivery.channel import Channel
from distrain.partition import RowGroup
from distrain.schema import Schema

SIZES = [[20] * 6, [20] * 4]
ROWS = 200


def loader_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(("loader", "decode"))]


@pytest.fixture
def dataset(write_table: Any, schema: Schema) -> Dataset:
    return Dataset(write_table(SIZES), schema)


def rows(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch["C3"].tolist()]


def test_1_row_groups_are_shuffled(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, the queue copied the order of the row groups before it was shuffled."""
    read: list[tuple[str, int]] = []
    load = CpuBackend.load

    def noting_load(backend: Any, group: RowGroup, *rest: Any) -> None:
        read.append((group.file, group.index))
        load(backend, group, *rest)

    monkeypatch.setattr(CpuBackend, "load", noting_load)
    orders = []
    for epoch in range(3):
        with Loader(dataset, batch_size=20, lanes=1, decode_threads=1).epoch(epoch) as batches:
            found = rows(batches)
        orders.append(tuple(read))
        read.clear()
        # The rows come in the order in which the row groups were read, whole groups at a time.
        groups = [(group.file, group.index) for group in dataset.table.row_groups]
        assert [groups[row // 20] for row in found[::20]] == list(orders[-1])
    in_file_order = tuple((group.file, group.index) for group in dataset.table.row_groups)
    assert len({*orders, in_file_order}) == 4


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_2_ranks_get_even_shares_and_none_hangs(
    write_table: Any, schema: Schema, num_ranks: int
) -> None:
    """There, four ranks got [4, 4, 4, 0] batches of some tables, and the empty one hung."""
    dataset = Dataset(write_table([[50], [3], [1]]), schema)  # fewer row groups than ranks
    shares = []
    for rank in range(num_ranks):
        loader = Loader(dataset, global_batch_size=12, rank=rank, num_ranks=num_ranks)
        shares.append([batch.num_rows for batch in loader])
    assert {len(share) for share in shares} == {5}
    for step in zip(*shares, strict=True):
        assert max(step) - min(step) <= 24 // num_ranks  # lanes of a rank give a row more each
    assert sum(map(sum, shares)) == 54


@pytest.mark.parametrize("last", [1, 7])
def test_3_drop_last_ends_though_the_last_row_group_fills_no_batch(
    write_table: Any, schema: Schema, last: int
) -> None:
    """There, the consumer waited for ever if the producer ended at the wrong moment."""
    loader = Loader(
        Dataset(write_table([[20, 20, last]]), schema),
        batch_size=20, drop_last=True, shuffle=False, lanes=1, prefetch_batches=1,
    )  # fmt: skip
    for _ in range(20):
        assert [batch.num_rows for batch in loader] == [20, 20]


def test_4_a_full_loader_sleeps_while_the_consumer_works(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, the producer polled a full queue and burned up to a quarter of a core."""
    full = threading.Event()
    wait_for_room = Channel.wait_for_room

    def telling_wait(channel: Any) -> bool:
        if channel.depth >= 2:
            full.set()
        return wait_for_room(channel)

    monkeypatch.setattr(Channel, "wait_for_room", telling_wait)
    with Loader(dataset, batch_size=20, prefetch_batches=2).epoch(0) as batches:
        assert full.wait(60)
        assert any(_sleeps_during_work() for _ in range(20))
        assert len(rows(batches)) == ROWS


def _sleeps_during_work() -> bool:
    """Whether no thread of the loader woke up during half a second of the consumer's own work.

    One that the kernel had not let run yet may do so once. One that polls does in each half second.
    """
    before = _wake_ups_of_loader()
    working_s, start_s = 0.0, time.thread_time()
    while working_s < 0.5:  # on the clock of the consumer's own thread
        np.sort(np.random.default_rng(0).random(10_000))
        working_s = time.thread_time() - start_s
    return _wake_ups_of_loader() == before


def _wake_ups_of_loader() -> list[str]:
    """How often each of the loader's threads was put to sleep so far, as the kernel counts it."""
    threads = loader_threads()
    assert len(threads) >= 2
    status = [Path(f"/proc/self/task/{thread.native_id}/status").read_text() for thread in threads]
    return [line for text in status for line in text.splitlines() if "ctxt_switches" in line]


def test_5_conversion_runs_outside_the_training_thread(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, columns became tensors in the thread that trains."""
    threads: dict[str, set[int]] = {"load": set(), "finish": set(), "transform": set()}
    load, finish = CpuBackend.load, CpuBackend.finish

    def noting_load(*arguments: Any) -> None:
        threads["load"].add(threading.get_ident())
        load(*arguments)

    def noting_finish(*arguments: Any) -> Batch:
        threads["finish"].add(threading.get_ident())
        return finish(*arguments)

    def transform(batch: Batch) -> Batch:
        threads["transform"].add(threading.get_ident())
        return batch

    monkeypatch.setattr(CpuBackend, "load", noting_load)
    monkeypatch.setattr(CpuBackend, "finish", noting_finish)
    assert len(rows(Loader(dataset, batch_size=20, transforms=[transform]))) == ROWS
    assert all(threads.values())
    assert threading.get_ident() not in set.union(*threads.values())


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32, np.uint64])
def test_6_ids_do_not_pass_through_float32(write_table: Any, schema: Schema, kind: Any) -> None:
    """There, 16777217 became 16777216."""
    ids = (2**24 + 1 + 2 * np.arange(40)).astype(kind)
    dataset = Dataset(write_table([[40]], C1=ids), schema)
    batch = Loader(dataset, batch_size=40, shuffle=False, lanes=1).sample_batch()
    assert batch["C1"].dtype == torch.int32
    assert batch["C1"].tolist() == ids.tolist()


def test_7_there_is_no_index_to_ignore(dataset: Dataset) -> None:
    """There, `loader[3]` gave whatever batch was next."""
    loader: Any = Loader(dataset, batch_size=20)
    with pytest.raises((TypeError, NotImplementedError)):
        loader[3]
    with loader.epoch(0) as batches:
        whole = list(batches)
    with loader.epoch(0, start_step=3) as batches:  # what takes its place keeps its word
        assert torch.equal(next(batches).categorical, whole[3].categorical)


def test_8_making_loaders_takes_no_memory(dataset: Dataset) -> None:
    """There, users saw memory grow with each loader made."""
    block_bytes = 1024 * 1024

    def make_and_use() -> None:
        loader = Loader(dataset, batch_size=ROWS, decode_threads=1)
        # It lives as long as the loader does: one that is kept shows.
        loader.ballast = np.ones(block_bytes, np.uint8)  # type: ignore[attr-defined]
        next(iter(loader))

    for _ in range(30):
        make_and_use()
    before = psutil.Process().memory_info().rss
    for _ in range(75):
        make_and_use()
    grown = psutil.Process().memory_info().rss - before
    # Loaders that are kept make 75 MiB; allocators were seen to settle within 5, and a cluster that
    # earlier tests left running takes its own.
    assert grown < 35 * 2**20, f"{grown / 2**20:.1f} MiB"


def test_9_a_loader_for_the_host_wakes_no_gpu(dataset: Dataset) -> None:
    """There, every rank opened GPU 0, and device="cpu" allocated on it nevertheless."""
    if torch.cuda.is_initialized():
        pytest.skip("an earlier test uses the GPU in this process")
    for device in (None, "cpu", torch.device("cpu")):
        batch = Loader(dataset, batch_size=20, device=device).sample_batch()
        assert batch.categorical.device.type == "cpu"
    assert not torch.cuda.is_initialized()


@pytest.mark.gpu
def test_9_a_loader_for_the_host_allocates_nothing_on_a_gpu(dataset: Dataset) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert len(rows(Loader(dataset, batch_size=20, device="cpu"))) == ROWS
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_10_epochs_differ(dataset: Dataset) -> None:
    """There, `epochs(n)` gave the same order n times."""
    found = rows(Loader(dataset, batch_size=20).epochs(3))
    epochs = [found[start : start + ROWS] for start in range(0, 3 * ROWS, ROWS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
