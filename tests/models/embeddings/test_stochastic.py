"""Stochastic rounding: its law, and what it must leave alone."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings.kernels.random_bits import round_to_bfloat16

DRAWS = 20_000


def rounded_often(value: float) -> torch.Tensor:
    """`[DRAWS]`: the value rounded in as many rows."""
    values = torch.full((DRAWS // 10, 10), value)
    return round_to_bfloat16(values, 5, torch.arange(DRAWS // 10)).float().flatten()


@pytest.mark.parametrize("value", [1 + 2**-9, -1 - 2**-9, 1.0 + 2**-15, 0.1, -3e-5, 1e30, 1e-39])
def test_the_mean_is_the_value_and_no_result_is_further_than_a_step(value: float) -> None:
    exact = float(torch.tensor(value))
    results = rounded_often(value).double()
    distinct = sorted(set(results.tolist()))
    low = float(torch.tensor(value).view(torch.int32).bitwise_and(-65536).view(torch.float32))
    high = float((torch.tensor(low).view(torch.int32) + 65536).view(torch.float32))
    step = high - low
    assert set(distinct) <= {low, high}
    share = (exact - low) / step
    # Five standard deviations of the mean of independent draws.
    slack = 5 * math.sqrt(share * (1 - share) / DRAWS) * abs(step)
    assert abs(float(results.mean()) - exact) <= slack


@given(st.floats(width=16), st.integers(0, 2**64 - 1), st.integers(0, 2**62))
@settings(max_examples=20, deadline=None)
def test_what_bfloat16_holds_stays(value: float, seed: int, key: int) -> None:
    exact = torch.tensor([[value]]).bfloat16()
    result = round_to_bfloat16(exact.float(), seed, torch.tensor([key]))
    assert torch.equal(result, exact) or (value != value and bool(result.isnan()))


def test_infinity_and_nan_stay_what_they_are() -> None:
    values = torch.tensor([[math.inf, -math.inf, math.nan, 0.0, -0.0]])
    # A NaN whose only set bits are those that are cut off.
    nan = torch.tensor([[0x7F800001]], dtype=torch.int32).view(torch.float32)
    values = torch.cat([values, nan], 1)
    for seed in range(50):
        result = round_to_bfloat16(values, seed, torch.tensor([9]))[0]
        assert result[:2].tolist() == [math.inf, -math.inf]
        assert result[[2, 5]].isnan().all()
        assert result[3:5].view(torch.int16).tolist() == [0, -32768]


def test_a_row_is_rounded_by_seed_and_key_alone() -> None:
    values = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    keys = torch.arange(40) * 2**33
    whole = round_to_bfloat16(values, 3, keys)
    order = torch.arange(39, -1, -1)
    assert torch.equal(round_to_bfloat16(values[order], 3, keys[order]), whole[order])
    for other in (
        round_to_bfloat16(values, 4, keys),
        round_to_bfloat16(values, 3 + 2**40, keys),
        round_to_bfloat16(values, 3, keys + 2**40),
        round_to_bfloat16(values, 3, keys + 1),
    ):
        assert 0.2 < float((other != whole).float().mean()) < 0.5
    assert torch.equal(round_to_bfloat16(values, torch.tensor(3), keys), whole)
