"""What a process that trains here in many tests must be told once, and forget after each."""

import os
from collections.abc import Iterator

import pytest
import torch

# torch asks for it once a process, at the first matrix product. Ranks set it themselves; here a
# test that multiplies before any rank did would make all later ones warn.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def no_switches_are_left() -> Iterator[None]:
    """An inline rank switches deterministic algorithms on, for its process."""
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
