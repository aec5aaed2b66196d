"""Initial values of tables: the generator, how they are spread, and on what they depend."""

import numpy as np
import pytest
import torch
from host_work import HostWork
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings import (
    EmbeddingCollection,
    Peers,
    TableColumn,
    collection,
    kernels,
)
from distrain.models.embeddings.canonical_state import canonical_weights
from distrain.models.embeddings.kernels import cpu as kernels_cpu, random_bits

COLUMNS = (
    TableColumn("a", 50, 4),
    TableColumn("b", 7, 4),
    TableColumn("c", 29, 6),
    TableColumn("d", 1, 4),
    TableColumn("e", 50, 4, "mean", table="a"),
)
KEY = 0x9E3779B97F4A7C15


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def tables(columns=COLUMNS, **options):
    return EmbeddingCollection(columns, **{"generator": generator()} | options)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_the_words_are_those_that_its_authors_published(counter, key, expected):
    """The answers for philox4x32 with 10 rounds in Random123's `kat_vectors`."""
    words = [torch.tensor([int(word, 16)]) for word in counter.split()]
    low, high = (int(word, 16) for word in key.split())
    got = random_bits.philox(tuple(words), high << 32 | low)
    assert [f"{int(word):08x}" for word in got] == expected.split()


@pytest.mark.skipif(not kernels_cpu.AVAILABLE, reason="distrain was built without a compiler")
@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2**40), max_size=40),
    st.integers(1, 19),
    st.floats(1e-6, 1.0),
)
def test_c_and_torch_draw_the_same_bits(key, rows, dim, bound):
    numbers, scale = torch.tensor(rows, dtype=torch.int64), random_bits.scale_of(bound)
    in_c, in_torch = (torch.full((len(rows), dim), torch.nan) for _ in range(2))
    kernels_cpu.draw(key, numbers, scale, in_c)
    random_bits.scaled(key, numbers, scale, in_torch)
    assert torch.equal(in_c, in_torch)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 999), min_size=1, max_size=50), st.integers(1, 19))
def test_a_rows_values_depend_on_no_other_row_and_on_no_width(rows, dim):
    whole, some = torch.empty(1000, 19), torch.empty(len(rows), dim)
    kernels.draw(KEY, torch.arange(1000), 0.3, whole)
    kernels.draw(KEY, torch.tensor(rows), 0.3, some)
    assert torch.equal(some, whole[rows, :dim])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        beside = torch.empty(len(rows), dim, dtype=dtype)
        apart = torch.empty(len(rows), 2 * dim, dtype=dtype)[:, ::2]
        for out in (beside, apart):
            kernels.draw(KEY, torch.tensor(rows), 0.3, out)
        assert torch.equal(apart, beside)
        torch.testing.assert_close(beside.to(some.dtype), some.to(dtype).to(some.dtype))


@pytest.mark.parametrize("placement", ["replicated", "row_wise", "host_cached"])
@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_do_not_depend_on_who_holds_them(monkeypatch, placement, num_ranks, dtype):
    alone = canonical_weights(tables(dtype=dtype))
    drawn = []
    draw_rows = kernels.draw

    def draw_and_count(key, rows, bound, out):
        drawn.append(out.numel())
        draw_rows(key, rows, bound, out)

    monkeypatch.setattr(kernels, "draw", draw_and_count)
    monkeypatch.setattr(collection, "_DRAWN_VALUES", 40)
    for rank in range(num_ranks):
        drawn.clear()
        placements = [placement] * len(COLUMNS)
        held = tables(placements=placements, peers=Peers(rank, num_ranks), dtype=dtype)
        held.apply_factor()
        assert sum(drawn) == sum(weight.numel() for weight in held.weights)  # no more than it holds
        assert max(drawn) <= 40
        for group, name in enumerate(alone):
            expected = alone[name].read(slice(0, alone[name].shape[0]))
            (number,) = (n for n, s in enumerate(held.stores) if s.dim == expected.shape[1])
            own = held.stores[number].kept_of(slice(0, len(expected)))
            assert torch.equal(held.weights[number].data, expected[own]), (group, rank)


def test_tables_of_a_device_are_made_and_drawn_there():
    meta = torch.device("meta")
    with HostWork() as work:
        held = tables(device=meta)
    assert {weight.device for weight in held.weights} == {meta}
    assert work.copies == []
    assert work.most <= len(COLUMNS)
    cached = tables(placements=["host_cached"] * len(COLUMNS), device=meta)
    assert all(weight.is_cpu for weight in cached.weights)


def test_seed_and_name_make_other_values():
    one, other = tables(), tables(generator=generator(4))
    assert not (one.table("c") == other.table("c")).any()
    twins = tables((TableColumn("left", 50, 4), TableColumn("right", 50, 4)))
    assert not (twins.table("left") == twins.table("right")).any()


def test_a_table_in_bfloat16_begins_with_the_rounded_values():
    exact, rounded = tables(), tables(dtype=torch.bfloat16)
    assert torch.equal(rounded.table("c"), exact.table("c").bfloat16())
    wide = tables(dtype=torch.float64).table("c")
    assert torch.allclose(wide.float(), exact.table("c"), rtol=1e-6)


@pytest.mark.parametrize("in_c", [True, False])
def test_values_are_spread_evenly_between_the_bounds(monkeypatch, in_c):
    if not in_c:
        monkeypatch.setattr(kernels_cpu, "AVAILABLE", False)
    column = TableColumn("a", 10_000, 16)
    bound = column.cardinality**-0.5
    values = tables([column], generator=generator(0)).table("a").double().numpy() / bound
    assert -1 <= values.min() < -0.999
    assert 0.999 < values.max() <= 1
    # Five standard errors of what 160,000 independent values would have.
    count = values.size
    assert abs(values.mean()) < 5 * np.sqrt(1 / 3 / count)
    assert abs(values.var() - 1 / 3) < 5 * np.sqrt(4 / 45 / count)
    ordered = np.sort(values.ravel())
    even = (2 * np.arange(count) + 1) / count - 1
    assert np.abs(ordered - even).max() / 2 < 2.5 / np.sqrt(count)  # Kolmogorov and Smirnov
    for apart in (values[1:] * values[:-1], values[:, 1:] * values[:, :-1]):
        assert abs(apart.mean()) < 5 / 3 / np.sqrt(apart.size)  # of neighbours


@pytest.mark.gpu
def test_a_gpu_draws_the_same_bits():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    rows = torch.arange(0, 100_000, 3)
    here, there = torch.empty(len(rows), 13), torch.empty(len(rows), 13, device="cuda")
    kernels.draw(KEY, rows, 0.37, here)
    kernels.draw(KEY, rows.cuda(), 0.37, there)
    assert torch.equal(here, there.cpu())
    for dtype in (torch.float32, torch.bfloat16):
        made_there = tables(dtype=dtype, device=torch.device("cuda")).weights
        for ours, theirs in zip(made_there, tables(dtype=dtype).weights, strict=True):
            assert ours.is_cuda
            assert torch.equal(ours.cpu(), theirs)
