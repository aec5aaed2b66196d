from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.loader.partition.row_order import (
    ORDER_IS_BUILT,
    chunk_order,
    key_order,
    parts_of,
    row_draws,
    row_keys,
    row_order,
    row_permutation,
)
from distrain.loader.partition.table import RowGroup


@settings(deadline=None, max_examples=40)
@given(size=st.integers(0, 300), seed=st.integers(0, 2**70), epoch=st.integers(0, 9))
def test_a_permutation_holds_each_row_once(size: int, seed: int, epoch: int) -> None:
    order = row_permutation(size, seed, epoch, chunk=3)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(size))
    assert np.array_equal(order, row_permutation(size, seed, epoch, chunk=3))


@settings(deadline=None, max_examples=20)
@given(
    size=st.one_of(st.integers(0, 1500), st.sampled_from([4096, 65_535, 65_536, 65_537, 300_000])),
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 9),
)
def test_the_kernel_gives_the_same_order(size: int, seed: int, epoch: int) -> None:
    found = row_order(size, seed, epoch, 3)
    assert found.dtype == np.int32
    assert np.array_equal(found, row_permutation(size, seed, epoch, 3))


def test_without_the_kernel_numpy_gives_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.loader.partition.row_order.ORDER_IS_BUILT", False)
    found = row_order(8, seed=0, epoch=0, chunk=0)
    assert (found.dtype, found.tolist()) == (np.int32, GOLDEN_ROWS)


@pytest.mark.skipif(not ORDER_IS_BUILT, reason="built without a compiler")
@pytest.mark.parametrize(
    ("bits", "out"), [(1, np.empty(3, np.int32)), (32, np.empty(3, np.int32)), (8, bytearray(6))]
)
def test_the_kernel_refuses_what_it_cannot_number(bits: int, out: Any, wording: Wording) -> None:
    from distrain.loader.partition._order import order

    wording.refused(ValueError, lambda: order(1, 2, bits, out))


def test_seed_epoch_and_chunk_each_change_the_order() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (0, 2, 0)]
    orders = {tuple(row_permutation(64, *key)) for key in keys}
    assert len(orders) == len(keys)
    groups = {tuple(chunk_order([1] * 64, s, e, "chunk", 64)[0].row_groups) for s, e, _ in keys}
    assert len(groups) == len({key[:2] for key in keys})


tables = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 9)), max_size=30).map(
    lambda drawn: [RowGroup(f, i, n) for i, (f, n) in enumerate(sorted(drawn, key=str))]
)


@settings(deadline=None, max_examples=50)
@given(groups=tables, part_rows=st.one_of(st.none(), st.integers(1, 40)))
def test_parts_are_a_cover_and_as_large_as_they_may_be(
    groups: list[RowGroup], part_rows: int | None
) -> None:
    parts = parts_of(groups, part_rows)
    assert [place for part in parts for place in part] == list(range(len(groups)))
    rows = [sum(groups[place].num_rows for place in part) for part in parts]
    for part, num_rows in zip(parts, rows, strict=True):
        assert len({groups[place].file for place in part}) == 1
        assert len(part) == 1 or (part_rows is not None and num_rows <= part_rows)
    for part, following, num_rows in zip(parts, parts[1:], rows, strict=False):
        first = groups[following[0]]
        if part_rows is not None and first.file == groups[part[0]].file:
            assert num_rows + first.num_rows > part_rows


@settings(deadline=None, max_examples=40)
@given(
    groups=tables.filter(bool),
    part_rows=st.integers(1, 40),
    seed=st.integers(0, 2**70),
    parts_per_chunk=st.integers(1, 4),
    shuffle=st.sampled_from(["none", "chunk", "full"]),
)
def test_row_groups_of_a_part_stay_together(
    groups: list[RowGroup], part_rows: int, seed: int, parts_per_chunk: int, shuffle: str
) -> None:
    sizes = [group.num_rows for group in groups]
    parts = parts_of(groups, part_rows)
    chunks = chunk_order(sizes, seed, 1, shuffle, parts_per_chunk, parts)
    laid = [place for chunk in chunks for place in chunk.row_groups]
    assert sorted(laid) == list(range(len(groups)))
    for part in parts:
        first = laid.index(part[0])
        assert tuple(laid[first : first + len(part)]) == part
    # Parts are laid as row groups of the same number would be.
    plain = chunk_order([1] * len(parts), seed, 1, shuffle, parts_per_chunk)
    assert [c.row_groups for c in chunks] == [
        tuple(place for part in c.row_groups for place in parts[part]) for c in plain
    ]
    assert chunk_order(sizes, seed, 1, shuffle, parts_per_chunk) == chunk_order(
        sizes, seed, 1, shuffle, parts_per_chunk, parts_of(groups)
    )


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


@settings(deadline=None, max_examples=20)
@given(
    drawn=st.lists(st.integers(0, 2**55 - 1), max_size=60),
    ties=st.booleans(),
    seed=st.integers(0, 9),
)
def test_keys_are_ordered_like_argsort_has_them(drawn: list[int], ties: bool, seed: int) -> None:
    num_rows = 200  # so the lowest 8 bits of a key are its row
    rows = np.random.default_rng(seed).permutation(num_rows)[: len(drawn)].astype(np.uint64)
    above = np.array(drawn, np.uint64) % np.uint64(5 if ties else 2**55)
    keys = above << np.uint64(8) | rows
    assert key_order(keys, num_rows).tolist() == np.argsort(keys).tolist()


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 400), seed=st.integers(0, 9), epoch=st.integers(0, 9), data=st.data())
def test_keys_of_some_rows_are_those_of_all_and_give_the_permutation(
    rows: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(0, rows - first))
    keys = row_keys(rows, seed, epoch, 0, rows)
    assert row_keys(rows, seed, epoch, first, count).tolist() == keys[first:][:count].tolist()
    assert np.argsort(keys).tolist() == row_permutation(rows, seed, epoch, 0).tolist()
    draws = row_draws(seed, epoch, 0, rows)
    assert len(set(draws.tolist())) == rows
    assert row_draws(seed, epoch, first, count).tolist() == draws[first:][:count].tolist()
    assert draws.tolist() != row_draws(seed, epoch + 1, 0, rows).tolist()


GOLDEN_ROWS = [2, 5, 1, 6, 7, 0, 4, 3]
GOLDEN_GROUPS = [(3, 2), (0, 4), (5, 1)]
