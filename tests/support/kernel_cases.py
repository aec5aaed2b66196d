"""What the tests of the tables' kernels share."""

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from distrain.embeddings.kernels import cpu as kernels_cpu, on_torch as kernels_torch

needs_c = pytest.mark.skipif(not kernels_cpu.AVAILABLE, reason="built without a compiler")
BOTH = pytest.mark.parametrize(
    "impl",
    [pytest.param(kernels_cpu, marks=needs_c, id="C"), pytest.param(kernels_torch, id="twin")],
)
DIMS = st.sampled_from([1, 3, 4, 8, 15, 16, 17, 32, 40])


def bits(values: Tensor) -> list[int]:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.contiguous().view(whole).flatten().tolist()


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
