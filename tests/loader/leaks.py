"""Hundreds of epochs, ended in every way there is, leave no memory.

`test_leaks.py` runs this file in a process of its own. That no thread and no open file is left is
checked after each module of this folder.
"""

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from distrain.loader import Dataset, Loader
from distrain.schema import Schema

EPOCHS = 200
WARM_UP_EPOCHS = 60
MOST_GROWTH_BYTES = 10 * 2**20
"""Over 200 epochs, for allocators to settle: 2 to 5 MiB were seen, and 0 to 4 over the next 1,500.
A batch of 98 KB that is kept in each epoch makes 19 MiB."""

BATCH_ROWS = 4096
SIZES = [[6000, 3000], [5000], [6200, 1800]]


def held_bytes() -> int:
    """The memory of this process that is no file's."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


class _ModelError(Exception):
    """The consumer's own."""


def leave_by_break(loader: Loader, steps: int) -> None:
    for step, _ in enumerate(loader):
        if step == steps:
            break


def leave_by_exception(loader: Loader, steps: int) -> None:
    with pytest.raises(_ModelError):
        _raise_after(loader, steps)


def _raise_after(loader: Loader, steps: int) -> None:
    for step, _ in enumerate(loader):
        if step == steps:
            raise _ModelError


def close_the_loader(loader: Loader, steps: int) -> None:
    batches = loader.epoch(steps)
    for _ in range(steps):
        next(batches)
    loader.close()


def fail_in_a_transform(loader: Loader, steps: int) -> None:
    def fail(batch: Any) -> Any:
        raise _ModelError

    with pytest.raises(_ModelError):
        list(loader.map(fail))


ENDS = (leave_by_break, leave_by_exception, close_the_loader, fail_in_a_transform)


def run_epochs(loader: Loader, count: int, chance: random.Random) -> None:
    for _ in range(count):
        chance.choice(ENDS)(loader, chance.randrange(len(loader) - 1))


def growth_of(loader: Loader) -> int:
    """How many bytes 200 epochs leave behind."""
    chance = random.Random(7)
    for end in ENDS:
        end(loader, 1)
    run_epochs(loader, WARM_UP_EPOCHS, chance)
    warm = held_bytes()
    run_epochs(loader, EPOCHS, chance)
    return held_bytes() - warm


@pytest.fixture
def dataset(write_table: Any, schema: Schema) -> Dataset:
    return Dataset(write_table(SIZES), schema)


@pytest.mark.parametrize("decode_threads", [1, 3])
def test_epochs_leave_nothing(dataset: Dataset, decode_threads: int) -> None:
    loader = Loader(
        dataset, batch_size=BATCH_ROWS, decode_threads=decode_threads, prefetch_batches=2
    )
    assert growth_of(loader) < MOST_GROWTH_BYTES


def test_epochs_with_a_cache_leave_nothing(dataset: Dataset, tmp_path: Path) -> None:
    loader = Loader(dataset, batch_size=BATCH_ROWS, cache=str(tmp_path / "cache"))
    assert growth_of(loader) < MOST_GROWTH_BYTES


def test_batches_that_are_kept_hold_no_more_than_themselves(dataset: Dataset) -> None:
    loader = Loader(dataset, batch_size=BATCH_ROWS, prefetch_batches=2)
    kept = list(loader.epochs(3))
    del kept
    before = held_bytes()
    kept = list(loader.epochs(20))
    size_bytes = sum(batch.num_rows for batch in kept) * dataset.row_bytes
    assert held_bytes() < before + 1.5 * size_bytes + MOST_GROWTH_BYTES
