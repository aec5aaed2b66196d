"""Clipping of the gradient's norm over all parameters, without a wait for the device."""

from collections.abc import Iterable

import torch
from torch import Tensor


def clip_scale(sq_norm: Tensor, max_norm: float) -> Tensor:
    """The factor that brings a gradient's norm down to `max_norm`, as torch's clipping has it.

    Args:
        sq_norm: A scalar: the sum of the squares of all gradients.
        max_norm: What their norm may be.

    Returns:
        `max_norm / (norm + 1e-6)`, at most 1: a scalar on the device of `sq_norm`.

    >>> clip_scale(torch.tensor(16.0), 2.0)
    tensor(0.5000)
    >>> clip_scale(torch.tensor(16.0), 5.0)
    tensor(1.)
    """
    return torch.clamp(max_norm / (sq_norm.sqrt() + 1e-6), max=1.0)


def total_sq_norm(parts: Iterable[Tensor]) -> Tensor:
    """The sum of the squares of all values of several tensors, a scalar; at least one tensor."""
    norms = [torch.linalg.vector_norm(part) for part in parts]
    total: Tensor = torch.stack(norms).square().sum()
    return total
