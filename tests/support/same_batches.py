"""Batches of two loaders, or anything that holds tensors, bit for bit."""

from typing import Any

import torch

from distrain.loader.batch import Batch
from distrain.loader.delivery.transfer import map_tensors


def tensors_of(item: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, dicts, batches, ..., in order."""
    found: list[torch.Tensor] = []
    map_tensors(item, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def bits(tensor: torch.Tensor) -> bytes:
    """The values bit by bit: some cells are arbitrary, so some floats are NaN."""
    return tensor.detach().numpy().tobytes()


def assert_same(left: Any, right: Any) -> None:
    """Check that both hold tensors of the same types, shapes, strides and bits."""
    lefts, rights = tensors_of(left), tensors_of(right)
    assert len(lefts) == len(rights) > 0
    for one, other in zip(lefts, rights, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.stride() == other.stride() or not one.numel()
        assert bits(one) == bits(other)


def rows_of(batch: Batch) -> list[int]:
    """The numbers of a batch's rows, which `write_table` writes into C3."""
    found: list[int] = batch["C3"].tolist()
    return found
