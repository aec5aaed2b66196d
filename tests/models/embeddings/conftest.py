"""Fixtures of the tables' tests."""

from collections.abc import Iterator

import pytest
import torch

from distrain.models.embeddings.kernels import cpu as kernels_cpu


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is called is shared by three threads, however small it is."""
    monkeypatch.setattr(kernels_cpu, "_BYTES_WORTH_A_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)
