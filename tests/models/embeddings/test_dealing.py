"""Rows dealt to ranks: each to one, equally many, and evenly whatever the stride of ids."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from distrain.models.embeddings.row_owners import key_at, num_rows_before, owner_and_row

MOST_OF_MEAN = 1.1
DISTINCT = 10_000


def busiest_of_mean(keys, num_ranks):
    owners, _ = owner_and_row(torch.as_tensor(keys), num_ranks)
    return int(owners.bincount(minlength=num_ranks).max()) * num_ranks / len(keys)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_ids_of_any_stride_fall_on_all_ranks_alike(num_ranks):
    for stride in [*range(1, 65), 100, 1000, 1 << 20]:
        for start in (0, 12_345):
            keys = start + np.arange(DISTINCT) * stride
            assert busiest_of_mean(keys, num_ranks) <= MOST_OF_MEAN, (stride, start)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_zipf_ids_fall_on_all_ranks_alike(num_ranks):
    drawn = np.random.default_rng(0).zipf(1.2, 1_000_000) % (1 << 40)
    _, first = np.unique(drawn, return_index=True)
    keys = drawn[np.sort(first)[:DISTINCT]]
    assert len(keys) == DISTINCT
    for stride in (1, 8):
        assert busiest_of_mean(keys * stride, num_ranks) <= MOST_OF_MEAN


@given(st.integers(1, 9), st.integers(0, 200), st.integers(0, 1 << 40))
def test_each_row_lies_on_one_rank_at_its_place(num_ranks, count, above):
    keys = torch.arange(count)
    held = [
        key_at(torch.arange(num_rows_before(count, rank, num_ranks)), rank, num_ranks)
        for rank in range(num_ranks)
    ]
    assert torch.equal(torch.cat(held).sort().values, keys)
    for rank, own in enumerate(held):
        owners, rows = owner_and_row(own, num_ranks)
        assert (owners == rank).all()
        assert torch.equal(rows, torch.arange(len(own)))
    assert max(map(len, held)) - min(map(len, held)) <= 1
    owner, row = owner_and_row(above, num_ranks)  # a number is dealt as in a tensor
    assert (owner, row) == tuple(map(int, owner_and_row(torch.tensor(above), num_ranks)))
    assert key_at(row, owner, num_ranks) == above
