"""Updates of touched rows: C against its fallback, and what torch has no optimizer for."""

from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from kernel_cases import BOTH, DIMS, bits, needs_c, normal
from torch import Tensor

from distrain.jobs.optimizers import UPDATE_RULES
from distrain.models.embeddings.kernels import (
    cpu as kernels_cpu,
    on_torch as kernels_torch,
)
from distrain.models.embeddings.kernels.segments import RowRule

NUM_TABLE_ROWS = 50
BETAS = (0.9, 0.999)


def updated(
    impl: ModuleType, kind: str, dtype: torch.dtype, dim: int, num_keys: int
) -> tuple[Tensor, ...]:
    """Weight and state after three updates of some rows."""
    facts = UPDATE_RULES[kind]
    axes = [2] * len(facts.state) + [1] * len(facts.row_state)
    rule = RowRule(kind, facts.eps, BETAS)
    weight = normal(1, NUM_TABLE_ROWS, dim).to(dtype)
    state = tuple(normal(2 + i, NUM_TABLE_ROWS, dim)[(slice(None), 0)[: 3 - n]].square()
                   for i, n in enumerate(axes))  # fmt: skip
    state = tuple(values.contiguous() for values in state)
    for step in range(3):
        keys = torch.randperm(NUM_TABLE_ROWS, generator=torch.Generator().manual_seed(step))
        keys = keys[:num_keys]
        # Values of all sizes, so that a sum in another order or with other rounding shows.
        grads = normal(step + 9, num_keys, dim) * 10 ** normal(step + 5, num_keys, dim)
        impl.update(
            rule, weight, state, keys, grads, rate=0.1,
            rounding_seed=2**63 + step, global_keys=keys * 2**33 + 1,
        )  # fmt: skip
    return weight, *state


@needs_c
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", UPDATE_RULES)
@given(dim=DIMS, num_keys=st.integers(0, NUM_TABLE_ROWS))
@settings(max_examples=12, deadline=None)
def test_updates_in_c_have_the_bits_of_the_twin(
    kind: str, dtype: torch.dtype, dim: int, num_keys: int
) -> None:
    ours = updated(kernels_cpu, kind, dtype, dim, num_keys)
    twins = updated(kernels_torch, kind, dtype, dim, num_keys)
    assert [bits(values) for values in ours] == [bits(values) for values in twins]


@needs_c
@pytest.mark.parametrize("kind", UPDATE_RULES)
def test_threads_do_not_change_updates(kind: str, many_threads: None) -> None:
    with pytest.MonkeyPatch.context() as alone:
        alone.setattr(kernels_cpu, "_BYTES_WORTH_A_THREAD", 1 << 40)
        expected = updated(kernels_cpu, kind, torch.bfloat16, 16, 40)
    ours = updated(kernels_cpu, kind, torch.bfloat16, 16, 40)
    assert [bits(values) for values in ours] == [bits(values) for values in expected]


@BOTH
@pytest.mark.parametrize("dim", [3, 16, 40])
def test_rowwise_adagrad_is_its_formula(impl: ModuleType, dim: int) -> None:
    weight, total, grads = normal(0, 5, dim), normal(1, 5).square(), normal(2, 3, dim)
    keys = torch.tensor([4, 0, 2])
    row, state, grad = weight[keys].double(), total[keys].double(), grads.double()
    state += grad.square().mean(1)
    row -= 0.1 / (state.sqrt().unsqueeze(1) + 1e-8) * grad
    untouched = weight[[1, 3]].clone()
    impl.update(RowRule("rowwise_adagrad", 1e-8), weight, (total,), keys, grads, rate=0.1)
    np.testing.assert_allclose(weight[keys].numpy(), row.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total[keys].numpy(), state.numpy(), rtol=1e-6)
    assert torch.equal(weight[[1, 3]], untouched)
