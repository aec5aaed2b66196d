"""Triton's kernels on a GPU against their fallbacks."""

import pytest
import torch
from triton_cases import (
    KINDS,
    check_interaction,
    check_interaction_beside,
    check_lookup,
    check_sums,
    check_update,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
if torch.cuda.is_available():
    pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)


@pytest.fixture(autouse=True)
def with_triton(monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", "1")


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("returned", [torch.float32, torch.bfloat16])
def test_lookup(stored, returned):
    check_lookup("cuda", stored, returned)


@pytest.mark.parametrize("sizes", [(30, 50, 0), (4, 700, 130), (2, 200_000, 70), (3, 0, 0)])
def test_sums(sizes):
    check_sums("cuda", *sizes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("summed", [False, True])
def test_update(kind, stored, summed):
    check_update("cuda", kind, stored, summed=summed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [(1000, 27, 16), (1000, 40, 128), (4, 2, 1), (0, 3, 4)])
def test_interaction(case, dtype):
    check_interaction("cuda", *case, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [(1000, 27, 16), (100, 4, 70), (4, 2, 1), (0, 3, 4)])
def test_interaction_beside(case, dtype):
    check_interaction_beside("cuda", *case, dtype=dtype)
