"""Batches stay as they were given, whatever part of them is kept, while later ones are made."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.filling.batch_memory import BlockPool
from distrain.loader.partition.footers import read_footers
from distrain.schema import Schema

EPOCHS = 4


@pytest.fixture
def loader(write_table: Any, schema: Schema) -> Loader:
    table = read_footers(write_table([[40, 31, 7], [64], [1, 50, 33]]), schema)
    return Loader(Dataset.of(table, schema), global_batch_size=32, lanes=4, prefetch_batches=2)


def columns_of(batch: Batch) -> list[torch.Tensor]:
    assert batch.labels is not None
    assert batch.label is not None
    return [batch.categorical, batch.continuous, batch.labels, batch.label]


def loader_again(loader: Loader) -> Any:
    """The same epochs' batches, once more from the first."""
    loader.set_epoch(0)
    return loader.epochs(EPOCHS)


@pytest.mark.parametrize(
    "part",
    [
        lambda batch: batch["C1"],
        lambda batch: batch.categorical[3:7],
        lambda batch: batch.categorical[:, 1:2],
        lambda batch: batch.categorical.t()[2],
        lambda batch: batch.continuous.t().reshape(-1),
        lambda batch: batch.label[-1],
        lambda batch: batch.labels,
        lambda batch: batch.continuous.numpy()[1:],
        lambda batch: memoryview(batch["C2"].numpy()),
        lambda batch: batch.categorical.untyped_storage(),
        lambda batch: torch.from_dlpack(batch["C1"].detach()),
        lambda batch: batch["I1"].view(torch.int32).unfold(0, 1, 1),
    ],
)
def test_a_part_of_a_batch_keeps_its_memory(loader: Loader, part: Callable[[Batch], Any]) -> None:
    def bits(value: Any) -> np.ndarray:
        if isinstance(value, torch.UntypedStorage):
            return np.array(value.tolist())
        return value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)

    kept, copies = [], []
    for batch in loader.epochs(EPOCHS):
        kept.append(part(batch))
        copies.append(bits(kept[-1]).copy())
        del batch
    gc.collect()
    for value, copied in zip(kept, copies, strict=True):
        assert np.array_equal(bits(value), copied)


def test_batches_changed_in_place_leave_the_others_as_they_are(loader: Loader) -> None:
    expected = [[c.clone() for c in columns_of(batch)] for batch in loader.epochs(EPOCHS)]
    found = []
    for batch in loader_again(loader):
        found.append([column.clone() for column in columns_of(batch)])
        for column in columns_of(batch):
            column.fill_(-77)
    for copied, wanted in zip(found, expected, strict=True):
        assert all(map(torch.equal, copied, wanted))


def test_a_pool_lends_no_memory_twice_at_a_time() -> None:
    rng = np.random.default_rng(0)
    pool = BlockPool(3)
    lent: dict[int, np.ndarray] = {}
    parts: dict[int, np.ndarray] = {}
    for number in range(300):
        block = pool.allocate(int(rng.integers(0, 50)))
        block[:] = number
        lent[number] = block
        if rng.random() < 0.5:  # only a part of it is kept
            parts[number] = lent.pop(number)[1:, 2:]
        del block
        for held in (lent, parts):
            if len(held) > 8:
                del held[int(rng.choice(list(held)))]
            assert all((array == name).all() for name, array in held.items())


def test_no_more_blocks_are_kept_than_a_loader_needs() -> None:
    pool = BlockPool(3, most_idle=2)
    gathered = [pool.allocate(5) for _ in range(10)]
    owners = {block.ctypes.data for block in gathered}
    gathered.clear()
    again = [pool.allocate(5) for _ in range(2)]
    assert {block.ctypes.data for block in again} <= owners
    assert not pool._idle


def test_an_epoch_that_is_ended_early_gives_back_its_memory_at_once(loader: Loader) -> None:
    with loader.epoch(0) as batches:
        next(batches)
    gc.disable()
    try:
        with loader.epoch(1) as batches:
            next(batches)
        given_back = len(loader._pool._idle)
        with loader.epoch(2) as batches:
            next(batches)
        # Without the collector, only what nothing refers to has come back. The second may have had
        # more batches open than the first when it was ended; what it took has come back at least.
        assert given_back > 0
        assert len(loader._pool._idle) >= given_back
    finally:
        gc.enable()


@pytest.mark.parametrize("num_rows", [2**40, 2**56])
def test_memory_that_is_not_there_is_a_memory_error(num_rows: int) -> None:
    with pytest.raises(MemoryError):
        BlockPool(40).allocate(num_rows)
