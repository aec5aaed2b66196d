import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrain.errors import SpecError
from distrain.partition import chunk_order, row_permutation

group_sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@settings(deadline=None, max_examples=100)
@given(
    sizes=group_sizes,
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 1000),
    shuffle=st.sampled_from(["chunk", "none"]),
    parts=st.integers(1, 6),
)
def test_chunks_are_a_line_of_all_row_groups(
    sizes: list[int], seed: int, epoch: int, shuffle: str, parts: int
) -> None:
    chunks = chunk_order(sizes, seed, epoch, shuffle, parts)
    groups = [group for chunk in chunks for group in chunk.row_groups]
    assert sorted(groups) == list(range(len(sizes)))
    if shuffle == "none":
        assert groups == sorted(groups)
    start = 0
    for chunk in chunks:
        assert chunk.start == start
        assert chunk.num_rows == sum(sizes[group] for group in chunk.row_groups)
        start += chunk.num_rows
    assert all(len(chunk.row_groups) == parts for chunk in chunks[:-1])
    assert chunks == chunk_order(sizes, seed, epoch, shuffle, parts)


@settings(deadline=None, max_examples=100)
@given(size=st.integers(0, 300), seed=st.integers(0, 2**70), epoch=st.integers(0, 9))
def test_a_permutation_holds_each_row_once(size: int, seed: int, epoch: int) -> None:
    order = row_permutation(size, seed, epoch, chunk=3)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(size))
    assert np.array_equal(order, row_permutation(size, seed, epoch, chunk=3))


def test_seed_epoch_and_chunk_each_change_the_order() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (0, 2, 0)]
    orders = {tuple(row_permutation(64, *key)) for key in keys}
    assert len(orders) == len(keys)
    groups = {tuple(chunk_order([1] * 64, s, e, "chunk", 64)[0].row_groups) for s, e, _ in keys}
    assert len(groups) == len({key[:2] for key in keys})


def test_every_order_of_three_rows_is_about_as_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(3000):
        order = tuple(row_permutation(3, seed, 0, 0).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(400 < count < 600 for count in counts.values())


def test_orders_stay_the_same_from_release_to_release() -> None:
    # A resumed job must find the order it began with: these numbers may never change.
    assert row_permutation(8, seed=0, epoch=0, chunk=0).tolist() == GOLDEN_ROWS
    assert [
        c.row_groups for c in chunk_order([1] * 6, seed=7, epoch=2, parts_per_chunk=2)
    ] == GOLDEN_GROUPS


GOLDEN_ROWS = [2, 5, 1, 6, 7, 0, 4, 3]
GOLDEN_GROUPS = [(3, 2), (0, 4), (5, 1)]


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match="unknown shuffle 'rows'") as caught:
        chunk_order([1], 0, 0, "rows")
    assert "chunk, none" in str(caught.value)
    with pytest.raises(SpecError, match="parts_per_chunk is 0"):
        chunk_order([1], 0, 0, parts_per_chunk=0)
    with pytest.raises(SpecError, match="seed is -1"):
        chunk_order([1], -1, 0)
