"""The kernels that move rows: naive loops, the fallback in torch, threads."""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from kernel_cases import BOTH, DIMS, bits, needs_c, normal
from torch import Tensor

from distrain.models.embeddings.kernels import (
    cpu as kernels_cpu,
    dispatch as kernels,
    on_torch as kernels_torch,
)


@st.composite
def segmented(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Ids of some columns in some segments, in any order in memory, with gaps."""
    num_columns, num_segments = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    num_counts = num_columns * num_segments
    counts = draw(st.lists(st.integers(0, 9), min_size=num_counts, max_size=num_counts))
    offsets, end = [0] * len(counts), 0
    for segment in draw(st.permutations(range(len(counts)))):
        offsets[segment] = end + draw(st.integers(0, 2))
        end = offsets[segment] + counts[segment]
    largest = draw(st.sampled_from([0, 3, 2**31 - 1]))
    ids = draw(st.lists(st.integers(0, largest), min_size=end, max_size=end))
    shape = (num_columns, num_segments)
    return (
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(offsets).view(shape),
        torch.tensor(counts).view(shape),
    )


def numbered_naively(ids: Tensor, offsets: Tensor, counts: Tensor) -> tuple[list[Any], ...]:
    numbers: list[int | None] = [None] * len(ids)
    distinct: list[int] = []
    per_column = []
    for starts, lengths in zip(offsets.tolist(), counts.tolist(), strict=True):
        seen: dict[int, int] = {}
        for start, length in zip(starts, lengths, strict=True):
            for place in range(start, start + length):
                numbers[place] = seen.setdefault(int(ids[place]), len(distinct) + len(seen))
        distinct += seen
        per_column.append(len(seen))
    return numbers, distinct, per_column


def check_unique(impl: ModuleType, case: tuple[Tensor, Tensor, Tensor]) -> None:
    expected, distinct, per_column = numbered_naively(*case)
    numbers, found, counts = impl.unique(*case)
    assert numbers.dtype == found.dtype == torch.int32
    assert [
        None if want is None else got for want, got in zip(expected, numbers.tolist(), strict=True)
    ] == expected
    assert (found.tolist(), counts.tolist()) == (distinct, per_column)


@BOTH
@given(case=segmented())
@settings(max_examples=30, deadline=None)
def test_distinct_ids_are_numbered_in_order_of_appearance(
    impl: ModuleType, case: tuple[Tensor, Tensor, Tensor]
) -> None:
    check_unique(impl, case)


@needs_c
def test_ids_that_share_a_slot_stay_apart(many_threads: None) -> None:
    # Multiples of a power of two are what a hash by multiplication likes least.
    ids = torch.cat([torch.arange(3000) * 2**19, torch.arange(3000) * 2**19]).int()
    check_unique(kernels_cpu, (ids, torch.tensor([[0], [3000]]), torch.tensor([[3000], [3000]])))


class Batch:
    """Arguments of `expand` and `collect`: columns of a few distinct rows at odd places."""

    def __init__(self, num_rows: int, num_columns: int, dim: int, seed: int = 0):
        make = torch.Generator().manual_seed(seed)
        self.num_distinct = 4 * num_columns
        own = torch.randint(4, (num_columns, num_rows), generator=make)
        self.inverse = (own + 4 * torch.arange(num_columns).unsqueeze(1)).int()
        self.places = torch.randperm(num_columns + 2, generator=make)[:num_columns]
        self.rows = normal(seed, self.num_distinct, dim)
        self.values = normal(seed + 1, num_rows, num_columns + 2, dim)

    def expanded_naively(self, out: Tensor) -> Tensor:
        for column, place in enumerate(self.places.tolist()):
            for row, number in enumerate(self.inverse[column].tolist()):
                out[row, place] = self.rows[number]
        return out

    def collected_naively(self, sums: Tensor) -> Tensor:
        for column, place in enumerate(self.places.tolist()):
            for row, number in enumerate(self.inverse[column].tolist()):
                sums[number] += self.values[row, place]
        return sums


SIZES = {"num_rows": st.integers(0, 40), "num_columns": st.integers(0, 4), "dim": DIMS}


@BOTH
@given(**SIZES)
@settings(max_examples=30, deadline=None)
def test_expand_and_collect_do_what_naive_loops_do(
    impl: ModuleType, num_rows: int, num_columns: int, dim: int
) -> None:
    batch = Batch(num_rows, num_columns, dim)
    out = torch.full_like(batch.values, 7.0)
    impl.expand(batch.rows, batch.inverse, batch.places, out)
    assert torch.equal(out, batch.expanded_naively(torch.full_like(out, 7.0)))
    for start in (torch.zeros_like(batch.rows), batch.rows):
        sums = start.clone()
        impl.collect(batch.values, batch.inverse, batch.places, sums)
        assert bits(sums) == bits(batch.collected_naively(start.clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_any_type_and_layout_find_who_moves_them(dtype: torch.dtype) -> None:
    batch = Batch(20, 3, 8)
    batch.rows, batch.values = batch.rows.to(dtype), batch.values.to(dtype)
    with_gaps = torch.stack([batch.rows, batch.rows], 1)[:, 0]
    for rows in (batch.rows, with_gaps):
        out = torch.full_like(batch.values, 7.0)
        kernels.expand(rows, batch.inverse, batch.places, out)
        assert torch.equal(out, batch.expanded_naively(torch.full_like(out, 7.0)))
    sums = torch.zeros_like(batch.rows)
    kernels.collect(batch.values, batch.inverse, batch.places, sums)
    assert torch.equal(sums, batch.collected_naively(torch.zeros_like(sums)))


@needs_c
def test_a_batch_larger_than_the_cache_is_expanded_alike() -> None:
    batch = Batch(25_000, 4, 16)
    out = torch.full((25_008 * 6 * 16,), 7.0)
    first = -out.data_ptr() % 64 // 4  # the way past the cache wants whole lines
    inner = out[first : first + 25_000 * 6 * 16].view(25_000, 6, 16)
    kernels_cpu.expand(batch.rows, batch.inverse, batch.places, inner)
    expected = torch.full_like(inner, 7.0)
    kernels_torch.expand(batch.rows, batch.inverse, batch.places, expected)
    assert torch.equal(inner, expected)
    assert bool((out[:first] == 7).all())
    assert bool((out[first + inner.numel() :] == 7).all())


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gather_copies_rows_as_float32(impl: ModuleType, dtype: torch.dtype) -> None:
    weight = normal(0, 9, 21).to(dtype)
    keys = torch.tensor([8, 0, 3, 3])
    assert torch.equal(impl.gather(weight, keys), weight[keys].float())
    assert impl.gather(weight, keys[:0]).shape == (0, 21)
    assert impl.gather(weight[:0], keys[:0]).shape == (0, 21)


@needs_c
@given(case=segmented(), **SIZES)
@settings(max_examples=20, deadline=None)
def test_threads_do_not_change_the_rest(
    case: tuple[Tensor, Tensor, Tensor], num_rows: int, num_columns: int, dim: int
) -> None:
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_cpu, "_BYTES_WORTH_A_THREAD", 1)
        torch.set_num_threads(3)
        try:
            check_unique(kernels_cpu, case)
            test_expand_and_collect_do_what_naive_loops_do.hypothesis.inner_test(
                kernels_cpu, num_rows, num_columns, dim
            )
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("module", [None, ModuleType("of_older_sources")])
def test_without_the_c_kernels_torch_does_the_work(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "distrain.models.embeddings.kernels._rows", module)
    monkeypatch.setattr("distrain.models.embeddings.kernels._rows", module, raising=False)
    spec = importlib.util.spec_from_file_location("kernels_cpu_alone", str(kernels_cpu.__file__))
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert not alone.AVAILABLE
    monkeypatch.setattr(kernels, "kernels_cpu", alone)
    weight = normal(0, 9, 4)
    assert torch.equal(kernels.gather(weight, torch.tensor([3])), weight[3:4])
    twice = torch.tensor([5, 5], dtype=torch.int32)
    assert kernels.unique(twice, torch.tensor([[0]]), torch.tensor([[2]])).ids.tolist() == [5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=20, deadline=None)
@given(indices=st.lists(st.integers(0, 4), max_size=30))
def test_rows_are_added_one_after_another(dtype: torch.dtype, indices: list[int]) -> None:
    rows = torch.randn(len(indices), 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found, expected = torch.ones(2, 5, 3, dtype=dtype)
    kernels.add_rows(rows, torch.tensor(indices, dtype=torch.int32), found)
    for index, row in zip(indices, rows, strict=True):
        expected[index] += row
    assert torch.equal(found, expected)
