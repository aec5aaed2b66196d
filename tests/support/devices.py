"""Which devices a test runs on, and what must not happen there."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_GPU, reason="torch finds no NVIDIA GPU"),
]
on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
"""For tests whose bodies would say on a CPU what other tests say."""


@contextmanager
def no_waiting(device: str) -> Iterator[None]:
    """Inside, torch raises where the host would wait for the GPU; nothing on a CPU."""
    if device != "cuda":
        yield
        return
    torch.cuda.synchronize()
    try:  # should torch's own notice be an error, the mode is set all the same
        torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
