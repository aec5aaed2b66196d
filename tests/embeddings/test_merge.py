"""merge_rows against a dictionary."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distrain.embeddings import merge, merge_rows


def naive(keys, grads):
    """Sums by key, added in the order of appearance."""
    sums = {}
    for key, grad in zip(keys.tolist(), grads, strict=True):
        sums[key] = sums[key] + grad if key in sums else grad.clone()
    ordered = sorted(sums)
    return torch.tensor(ordered, dtype=torch.int64), [sums[key] for key in ordered]


def check(keys, grads, unique, sums):
    expected_keys, expected_sums = naive(keys, grads)
    assert torch.equal(unique, expected_keys)
    assert sums.shape == (len(expected_keys), grads.shape[1])
    assert sums.dtype == grads.dtype
    for row, expected in zip(sums, expected_sums, strict=True):
        torch.testing.assert_close(row, expected)


some_keys = st.one_of(
    st.lists(st.integers(0, 5), max_size=60),
    st.lists(st.integers(0, 2**40), max_size=20),
    # So large that key and position don't fit into one word.
    st.lists(st.integers(2**62, 2**63 - 1), max_size=20),
)


@settings(deadline=None, max_examples=80)
@given(some_keys, st.integers(1, 5), st.sampled_from([torch.float32, torch.float64]))
def test_merge_equals_dictionary(keys, dim, dtype):
    keys = torch.tensor(keys, dtype=torch.int64)
    grads = torch.randn(len(keys), dim, dtype=dtype, generator=torch.Generator().manual_seed(1))
    check(keys, grads, *merge_rows(keys, grads))


@settings(deadline=None, max_examples=40)
@given(some_keys.filter(len))
def test_sort_by_torch_finds_the_same_segments(keys):
    keys = torch.tensor(keys, dtype=torch.int64)
    found = zip(merge._segments_by_numpy(keys), merge._segments_by_torch(keys), strict=True)
    assert all(torch.equal(one, other) for one, other in found)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 700)), min_size=1, max_size=4))
def test_sum_in_pieces_equals_dictionary(runs):
    keys = torch.from_numpy(np.repeat([k for k, _ in runs], [n for _, n in runs]))
    keys = keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(2))]
    grads = torch.randn(len(keys), 3, dtype=torch.float64)
    unique, order, starts = merge._segments_by_torch(keys)
    check(keys, grads, unique, merge._sum_in_pieces(order, grads, starts))


def test_no_rows():
    keys, sums = merge_rows(torch.empty(0, dtype=torch.int64), torch.empty(0, 4))
    assert keys.shape == (0,)
    assert sums.shape == (0, 4)


def test_sums_do_not_depend_on_threads():
    keys = torch.randint(0, 50, (5000,), generator=torch.Generator().manual_seed(3))
    grads = torch.randn(5000, 8, generator=torch.Generator().manual_seed(4))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(merge_rows(keys, grads)[1])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_order_of_appearance_decides_the_rounding():
    # 1 is lost beside 1e8 in fp32, so the order of the additions shows.
    keys = torch.zeros(3, dtype=torch.int64)
    grads = torch.tensor([[1e8], [-1e8], [1.0]])
    assert merge_rows(keys, grads)[1].item() == 1.0
    assert merge_rows(keys, grads[[0, 2, 1]])[1].item() == 0.0
