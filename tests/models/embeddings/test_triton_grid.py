"""The grids that Triton's kernels are launched with, which no interpreter checks."""

from types import SimpleNamespace

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install triton")


def test_no_number_of_rows_is_too_many_for_a_lookups_grid(monkeypatch):
    from distrain.models.embeddings.kernels import on_triton

    class Program:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args, **kwargs: None

    grids = []
    monkeypatch.setattr(on_triton, "triton_programs", SimpleNamespace(lookup=Program()))
    rows, dim, columns = 1_000_000, 128, 3
    weight = torch.empty((1, dim), device="meta")
    keys = torch.empty((columns, rows), dtype=torch.int32, device="meta")
    out = torch.empty((rows, columns, dim), device="meta")
    on_triton.lookup(weight, keys, torch.empty(columns, device="meta"), out)
    ((first, *others),) = grids
    assert first * on_triton._block(dim, on_triton._BLOCK_VALUES)[0] >= rows * columns
    assert first < 2**31
    assert all(axis <= 65_535 for axis in others)
