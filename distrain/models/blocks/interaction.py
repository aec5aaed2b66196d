"""Dot products of pairs of vectors, and their sum (factorisation machines)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from distrain.embeddings.kernels import runs_triton
from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.shapes import Flat, Shape, Value, stacked, vectors_of

# A program holds the products of all pairs of a row.
_MOST_VECTORS_IN_TRITON = 64


class PairProducts(nn.Module):
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

    >>> PairProducts(3)(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
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
        if runs_triton(vectors) and vectors.shape[1] <= _MOST_VECTORS_IN_TRITON:
            from distrain.models.blocks import interaction_triton

            return interaction_triton.pair_products(vectors)
        products: Tensor = _PairProducts.apply(  # type: ignore[no-untyped-call]
            vectors, self.pick, self.spread
        )
        return products


class DotProductInteraction(Block):
    """The dot products of all pairs of a row's vectors; see `PairProducts`.

    Shape:
        vectors of one width to `[rows, count * (count - 1) / 2]`.
    """

    def build(self, given: Shape) -> Shape:
        vectors = vectors_of(given, self.label)
        if vectors.count < 2:
            raise ModelError(
                f"{self.label} needs at least two vectors, and {given.made_by} gives {given}"
            )
        self.pairs = PairProducts(vectors.count)
        return Flat(self.pairs.num_pairs)

    def forward(self, value: Value) -> Tensor:
        products: Tensor = self.pairs(stacked(value))
        return products


class _PairProducts(torch.autograd.Function):
    """`PairProducts`, with a backward pass of one gather and one product.

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


class FMBlock(Block):
    """The pairwise part of a factorisation machine: the sum of all pairs' dot products.

    With v a row's vectors, sum over i < j of v_i . v_j = ((sum v)^2 - sum v^2) / 2, summed over the
    dimensions: linear in the number of vectors (Rendle, "Factorization Machines", ICDM 2010, lemma
    3.1; in DeepFM, arXiv:1703.04247, eq. 2). The first-order part is embeddings of width 1, added:
    `Filter(part="wide").connect(Aggregate("sum"))`.

    Args:
        per_dim: Leave out the sum over the dimensions: bi-interaction pooling, the sum of all
            pairs' products element by element (arXiv:1708.05027, eq. 4).

    Shape:
        vectors of one width to `[rows, 1]`, or `[rows, dim]` per dim.

    >>> from distrain.models.shapes import Vectors
    >>> fm = FMBlock()
    >>> str(fm.attach(Vectors(3, 2)))
    '[rows, 1]'
    >>> fm(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))  # 11 + 17 + 39
    tensor([[67.]])
    """

    def __init__(self, per_dim: bool = False):
        super().__init__()
        self.per_dim = per_dim

    def build(self, given: Shape) -> Shape:
        vectors = vectors_of(given, self.label)
        return Flat(vectors.dim if self.per_dim else 1)

    def forward(self, value: Value) -> Tensor:
        vectors = stacked(value)
        products = (vectors.sum(1).square() - vectors.square().sum(1)) / 2
        return products if self.per_dim else products.sum(1, keepdim=True)
