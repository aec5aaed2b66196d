"""What `test_triton.py` runs in a process of its own, where Triton interprets its kernels."""

import pytest
import torch
from triton_cases import (
    KINDS,
    check_interaction,
    check_interaction_beside,
    check_lookup,
    check_segments,
    check_sources,
    check_sums,
    check_update,
    twins,
)

from distrain.models.blocks import functional
from distrain.models.embeddings.kernels import triton_programs
from distrain.models.embeddings.kernels.fixed_shape import runs_triton


def test_the_kernels_are_interpreted_unless_switched_off():
    assert type(triton_programs.lookup).__name__ == "InterpretedFunction"
    assert runs_triton(torch.zeros(1))
    assert not runs_triton(torch.zeros(1, dtype=torch.float64))
    with twins():
        assert not runs_triton(torch.zeros(1))


# The interpreter cuts float32 off where a GPU rounds it to bfloat16, so float16 stands in.
@pytest.mark.parametrize("types", [(torch.float32, torch.float16), (torch.bfloat16, torch.float32)])
def test_lookup(types):
    check_lookup("cpu", *types)


# Segments within a tile of 32, of several tiles, of a group of 32 tiles; padding; nothing at all.
SIZES = [(30, 50, 0), (4, 700, 130), (2, 3000, 70), (3, 0, 0), (3, 0, 9)]


@pytest.mark.parametrize("sizes", SIZES)
def test_segments(sizes):
    check_segments("cpu", *sizes)


@pytest.mark.parametrize("num_rows", [0, 400])
def test_sources(num_rows):
    check_sources("cpu", num_rows)


@pytest.mark.parametrize("sizes", SIZES)
def test_sums(sizes):
    check_sums("cpu", *sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_update(kind):
    check_update("cpu", kind, torch.float32, summed=False)


@pytest.mark.parametrize(("kind", "summed"), [("sgd", False), ("adam", True)])
def test_update_of_bfloat16(kind, summed):
    check_update("cpu", kind, torch.bfloat16, summed=summed)


# Triton's interpreter gives wrong products of bfloat16, so these tests use float16 instead.
@pytest.mark.parametrize(
    "case",
    [
        (3, 27, 16, torch.float32),
        (2, 40, 100, torch.float32),
        (4, 2, 1, torch.float32),
        (2, 33, 70, torch.float16),
        (0, 3, 4, torch.float32),
    ],
)
def test_interaction(case):
    check_interaction("cpu", *case)


@pytest.mark.parametrize(
    "case",
    [
        (3, 27, 16, torch.float32),
        (3, 27, 16, torch.float16),
        (2, 4, 70, torch.float16),
        (0, 3, 4, torch.float16),
    ],
)
def test_interaction_beside(case, monkeypatch):
    monkeypatch.setattr(functional, "is_eager_gpu", lambda value: True)
    check_interaction_beside("cpu", *case)
