"""The parts that models are made of."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from distrain.embeddings.triton_use import runs_triton

# A program holds the products of all pairs of a row.
_MOST_VECTORS_IN_TRITON = 64


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers from width to width, each followed by a ReLU, the last one too.

    >>> mlp(13, 128, 64)(torch.zeros(5, 13)).shape
    torch.Size([5, 64])
    """
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        # In place: no gradient needs what a linear layer put out before its ReLU.
        layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def linear_over(layer: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """`layer(torch.cat(parts, dim=1))` without the copy: the weight is cut instead.

    The embeddings of a batch are its largest tensor by far, and a step that never copies them, nor
    their gradient, is about a tenth faster for it (docs/log.md).

    Args:
        layer: Takes the sum of the parts' widths.
        parts: Each `[rows, width]`; at least one.

    >>> layer, (a, b) = nn.Linear(5, 2), (torch.ones(4, 3), torch.ones(4, 2))
    >>> torch.allclose(linear_over(layer, [a, b]), layer(torch.cat([a, b], dim=1)))
    True
    """
    weights = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    output = functional.linear(parts[0], weights[0], layer.bias)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        output = torch.addmm(output, part, weight.t())
    return output


class DotInteraction(nn.Module):
    """The dot product of every pair of a row's vectors.

    The pairs are those of the strict lower triangle, row by row: (1,0), (2,0), (2,1), ...; see
    "Deep Learning Recommendation Model for Personalization and Recommendation Systems"
    (arXiv:1906.00091).

    Args:
        num_vectors: How many vectors a row has, at least 2.

    Attributes:
        num_pairs: `num_vectors * (num_vectors - 1) / 2`.

    Shape:
        `[rows, num_vectors, dim]` to `[rows, num_pairs]`.

    >>> DotInteraction(3)(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    tensor([[11., 17., 39.]])
    """

    pick: Tensor
    spread: Tensor

    def __init__(self, num_vectors: int):
        super().__init__()
        n = num_vectors
        first, second = torch.tril_indices(n, n, offset=-1)
        self.num_pairs = len(first)
        # pick[p] is where pair p lies in a flat n*n matrix. spread is the way back: which pair, if
        # any (num_pairs if none), each place of the symmetric matrix holds.
        spread = torch.full((n, n), self.num_pairs)
        spread[first, second] = torch.arange(self.num_pairs)
        spread[second, first] = torch.arange(self.num_pairs)
        self.register_buffer("pick", first * n + second, persistent=False)
        self.register_buffer("spread", spread.flatten(), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """The pairs' dot products."""
        if runs_triton(vectors) and vectors.shape[1] <= _MOST_VECTORS_IN_TRITON:
            from distrain.models import interaction_triton

            return interaction_triton.pair_products(vectors)
        products: Tensor = _PairProducts.apply(  # type: ignore[no-untyped-call]
            vectors, self.pick, self.spread
        )
        return products


class _PairProducts(torch.autograd.Function):
    """`DotInteraction`, with a backward pass of one gather and one product.

    With S the symmetric matrix of the pairs' gradients (0 on its diagonal), the gradient of the
    vectors V is S V. Autograd would scatter into a triangular matrix and multiply twice, which
    takes twice as long, and keep all n*n products until then.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pick: Tensor, spread: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, spread)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pick)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        vectors, spread = ctx.saved_tensors
        rows, n, _ = vectors.shape
        # The column of zeros is what places without a pair read.
        with_zero = functional.pad(grad.to(vectors.dtype), (0, 1))
        symmetric = with_zero.index_select(1, spread).view(rows, n, n)
        return torch.bmm(symmetric, vectors), None, None
