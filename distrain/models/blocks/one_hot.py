"""Ids as vectors with a single 1."""

import torch
from torch import Tensor


def one_hot(ids: Tensor, num_bins: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A 1 in the place of each id, 0 elsewhere; nothing waits for the device.

    A linear layer over it picks a column of its weight, which an embedding of the same ids does
    without the zeros: give `Embeddings` the cross or the column, with `dim` the layer's outputs.

    Args:
        ids: `[rows]`, integers; one outside `0 .. num_bins-1` gives zeros.
        num_bins: The width of the result.
        dtype: Of the result.

    Returns:
        `[rows, num_bins]`.

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return (ids[:, None] == torch.arange(num_bins, device=ids.device)).to(dtype)
