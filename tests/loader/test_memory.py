"""The formula of a loader's memory against blocks that a loader really holds."""

import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from distrain.jobs.spec.data import WindowsSpec
from distrain.loader import Dataset, Loader, loader as loader_module
from distrain.loader.filling.batch_memory import BlockPool
from distrain.loader.memory import batches_held, memory_of
from distrain.loader.partition.slices import LARGE_ROWS
from distrain.schema import Schema


class Held:
    """Counts blocks that are lent, and keeps the most there were."""

    def __init__(self) -> None:
        self.blocks: set[int] = set()
        self.most = 0
        self.changed = threading.Condition(threading.RLock())
        self.pools: list[BlockPool] = []

    def lent(self, key: int) -> None:
        with self.changed:
            self.blocks.add(key)
            self.most = max(self.most, len(self.blocks))
            self.changed.notify_all()

    def dropped(self, key: int) -> None:
        with self.changed:
            self.blocks.discard(key)

    def wait_for(self, blocks: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.most >= blocks, timeout=90)

    def bytes_in_pools(self) -> int:
        return sum(owner.nbytes for pool in self.pools for owner in pool._idle)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    counted = Held()

    class CountingPool(BlockPool):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            counted.pools.append(self)
            self._numbers = iter(range(10**9))

        def allocate(self, num_rows: int) -> Any:
            block = super().allocate(num_rows)
            key = next(self._numbers)
            counted.lent(key)
            weakref.finalize(block.base, counted.dropped, key)
            return block

    monkeypatch.setattr(loader_module, "BlockPool", CountingPool)
    return counted


@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    sizes=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=4),
    lanes_and_ranks=st.sampled_from([(1, 1), (2, 1), (6, 2), (6, 6), (12, 1), (12, 3)]),
    batch_size=st.integers(1, 60),
    parts=st.integers(1, 3),
    shuffle=st.sampled_from(["chunk", "chunk", "full", "none"]),
    decode_threads=st.sampled_from([1, 2, 5]),
    prefetch=st.integers(1, 3),
    last_rank=st.booleans(),
    large_rows=st.sampled_from([LARGE_ROWS, LARGE_ROWS, 12]),
    windows=st.sampled_from([None, WindowsSpec(by="file")]),
    data=st.data(),
)
def test_no_more_batches_are_held_than_the_formula_says(
    write_table: Any, schema: Schema, held: Held, sizes: list[list[int]],
    lanes_and_ranks: tuple[int, int], batch_size: int, parts: int, shuffle: str,
    decode_threads: int, prefetch: int, last_rank: bool, large_rows: int,
    windows: WindowsSpec | None, data: st.DataObject,
) -> None:  # fmt: skip
    held.most = 0
    held.pools.clear()
    folder = Path(write_table(sizes))
    files = [folder / f"part_{number}.parquet" for number in range(len(sizes))]
    part_size = data.draw(st.sampled_from([None, 24 * 60]))
    lanes, ranks = lanes_and_ranks
    with patch("distrain.loader.dataset.LARGE_ROWS", large_rows):
        dataset = Dataset(files, schema, part_size=part_size, windows=windows)
    with Loader(
        dataset,
        global_batch_size=batch_size,
        lanes=lanes,
        num_ranks=ranks,
        rank=ranks - 1 if last_rank else 0,
        shuffle=shuffle,
        parts_per_chunk=parts,
        prefetch_batches=prefetch,
        decode_threads=decode_threads,
    ) as loader:
        start = data.draw(st.integers(0, loader.num_steps - 1))
        for epoch, first in ((0, 0), (1, start)):
            with loader.epoch(epoch, start_step=first) as batches:
                for batch in batches:
                    assert batch.num_rows <= loader.memory.batch_rows
                del batch
            if epoch == 0:
                expected = batches_held(
                    loader.dataset, loader.options, consumer_batches=2, num_steps=loader.num_steps
                )
                assert 0 < held.most <= expected <= loader.memory.batches
        assert 0 < held.most <= loader.memory.batches
        assert held.bytes_in_pools() <= loader.memory.blocks_bytes


def test_the_formula_is_reached_where_all_lanes_change_chunks_at_once(
    write_table: Any, schema: Schema, held: Held
) -> None:
    folder = write_table([[20] * 24])  # 4 lanes of 120 rows: 6 whole chunks each
    options: dict[str, Any] = {"lanes": 4, "global_batch_size": 8, "prefetch_batches": 1}
    with Loader(Dataset(folder, schema), decode_threads=2, **options) as loader:
        most = loader.memory.batches
        assert most == 2 + (2 * 20 * 4 - 1) // 8 + 1 + 2
        with loader.epoch(0) as batches:
            kept = [next(batches)]  # the next four chunks are loaded without the consumer
            held.wait_for(2 * 20 * 4 // 8)
            assert len(kept) == 1
        assert 2 * 20 * 4 // 8 <= held.most <= most


# Of four lanes, three begin with a small chunk.
LONG = [*[4, 16, 20, 20, 20, 20, 20] * 3, *[20] * 6]


@pytest.mark.parametrize(
    ("files", "sizes", "looks_at"), [(1, LONG, 50), (3, LONG, 50), (3, [20] * 4, 1)]
)
def test_the_next_epoch_or_window_is_loaded_while_batches_of_the_one_before_are_left(
    write_table: Any, schema: Schema, held: Held, files: int, sizes: list[int], looks_at: int
) -> None:
    windows = WindowsSpec(by="file") if files > 1 else None
    dataset = Dataset(write_table([sizes] * files), schema, windows=windows)
    options: dict[str, Any] = {"lanes": 4, "global_batch_size": 8, "decode_threads": 1}
    with Loader(dataset, shuffle="none", prefetch_batches=1, **options) as loader:
        steps = sum(sizes) // 8
        with loader.in_turn(range(steps * 3)) as batches:
            for taken, batch in enumerate(batches, 1):
                if taken == looks_at:  # 10 are left, and 10 of the next one's are open
                    held.most = len(held.blocks)
                    held.wait_for(20)
                    assert held.most >= 20
                    begun = loader.stats.epochs
                assert batch.num_rows == 8
        assert (taken, begun, loader.stats.epochs) == (steps * 3, 2, 3)
        assert held.most <= loader.memory.batches


def test_memory_does_not_grow_with_the_table(write_table: Any, schema: Schema) -> None:
    short = Loader(Dataset(write_table([[16] * 40]), schema), lanes=2, batch_size=8).memory
    long = Loader(Dataset(write_table([[16] * 200]), schema), lanes=2, batch_size=8).memory
    # But for what tells the row groups apart.
    more = 160 * 232
    assert replace(short, schedule_bytes=short.schedule_bytes + more) == long


def test_the_terms_are_what_they_say(write_table: Any, schema: Schema) -> None:
    dataset = Dataset(write_table([[30, 50, 20]]), schema)
    loader = Loader(dataset, lanes=1, batch_size=10, decode_threads=2, parts_per_chunk=2)
    memory = loader.memory
    row_bytes = 4 * 6
    assert memory.blocks_bytes == memory.batches * (10 + 64) * row_bytes
    assert memory.decode_bytes == 2 * 50 * 8 * 6
    assert memory.order_bytes == 2 * 24 * (50 + 30)
    parts = (memory.blocks_bytes, memory.decode_bytes, memory.order_bytes, memory.schedule_bytes)
    assert memory.total_bytes == sum(parts)
    known = memory_of(dataset, loader.options, decoded_row_bytes=44, compressed_group_bytes=1000)
    assert known.decode_bytes == 2 * (50 * 44 + 1000)
    pinned = memory_of(dataset, loader.options, pinned=True)
    assert pinned.blocks_bytes == memory.batches * 256  # torch rounds 240 bytes up
