"""Interactions of a row's vectors: dot products of pairs, as in DLRM, attention, and others."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.functional import Linear, side_by_side
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings.kernels import runs_triton
from distrain.models.shapes import (
    Columns,
    Features,
    Flat,
    Shape,
    Value,
    Vectors,
    stacked,
    vectors_of,
)

# The most vectors of a row; a Triton program has the products of all their pairs in memory.
_MOST_VECTORS_IN_TRITON = 64


class PairProducts(nn.Module):
    """Computes the dot product of every pair of a row's vectors.

    The pairs are those of the strict lower triangle, row by row: (1,0), (2,0), (2,1), ...; see
    "Deep Learning Recommendation Model for Personalization and Recommendation Systems"
    (arXiv:1906.00091).

    Args:
        num_vectors: Number of vectors of a row, at least 2.

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
        self.num_vectors = n = num_vectors
        # With NumPy: on `meta`, torch's own functions would load its compiler, for seconds.
        first, second = np.tril_indices(n, -1)
        self.num_pairs = len(first)
        # pick[p] is the place of pair p in a flat n*n matrix. spread is the inverse: the pair of
        # each place of the symmetric matrix, num_pairs if there is none.
        spread = np.full((n, n), self.num_pairs)
        spread[first, second] = spread[second, first] = np.arange(self.num_pairs)
        self.register_buffer("pick", torch.tensor(first * n + second), persistent=False)
        self.register_buffer("spread", torch.tensor(spread.flatten()), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        if self._in_triton(vectors):
            from distrain.models.blocks import interaction_triton

            return interaction_triton.pair_products(vectors)
        products: Tensor = _PairProducts.apply(  # type: ignore[no-untyped-call]
            vectors, self.pick, self.spread
        )
        return products

    def beside(self, deep: Tensor, others: Tensor) -> Tensor:
        """Return `deep`, then the dot products of all pairs of vectors: `[rows, dim + pairs]`.

        The vectors of a row are `deep`, `[rows, dim]`, then `others`, `[rows, count, dim]`.
        """
        if self._in_triton(others):
            from distrain.models.blocks import interaction_triton

            return interaction_triton.pairs_beside(deep, others)
        pairs = self(torch.cat([deep.unsqueeze(1), others], dim=1))
        # The pairs are copied into one tensor. Two parts took a fifth longer, because the next
        # layer would split its weight.
        return side_by_side([deep, pairs])

    def _in_triton(self, vectors: Tensor) -> bool:
        return runs_triton(vectors) and self.num_vectors <= _MOST_VECTORS_IN_TRITON


class DotProductInteraction(Block):
    """Computes the dot products of all pairs of a row's vectors; see `PairProducts`.

    Shape:
        vectors of equal width to `[rows, count * (count - 1) / 2]`.
    """

    def build(self, input_shape: Shape) -> Shape:
        vectors = vectors_of(input_shape, self.label)
        if vectors.count < 2:
            raise ModelError(
                f"{self.label} needs at least two vectors, but {input_shape.made_by} returns "
                f"{input_shape}"
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
    takes twice as long, and would keep all n*n products until the backward pass.
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
        # Places without a pair read the column of zeros.
        with_zero = functional.pad(grad.to(vectors.dtype), (0, 1))
        symmetric = with_zero.index_select(1, spread).view(rows, n, n)
        return torch.bmm(symmetric, vectors), None, None


class FMBlock(Block):
    """The pairwise part of a factorisation machine: the sum of all pairs' dot products.

    With v a row's vectors, sum over i < j of v_i . v_j = ((sum v)^2 - sum v^2) / 2, summed over the
    dimensions. So the cost is linear in the number of vectors (Rendle, "Factorization Machines",
    ICDM 2010, lemma 3.1; in DeepFM, arXiv:1703.04247, eq. 2). The first-order part is a sum
    of embeddings of width 1: `Filter(part="wide").connect(Aggregate("sum"))`.

    Args:
        per_dim: Omit the sum over the dimensions: bi-interaction pooling, the sum of all pairs'
            products element by element (arXiv:1708.05027, eq. 4).

    Shape:
        vectors of equal width to `[rows, 1]`, or `[rows, dim]` if `per_dim`.

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

    def build(self, input_shape: Shape) -> Shape:
        vectors = vectors_of(input_shape, self.label)
        return Flat(vectors.dim if self.per_dim else 1)

    def forward(self, value: Value) -> Tensor:
        vectors = stacked(value)
        products = (vectors.sum(1).square() - vectors.square().sum(1)) / 2
        return products if self.per_dim else products.sum(1, keepdim=True)


class FieldAttention(Block):
    """Layers of multi-head attention among a row's vectors (arXiv:1810.11921, eq. 5 to 8).

    A head's weights are the softmax over the products of queries and keys, without scaling. The
    heads are concatenated, a linear layer of the input is added, and a ReLU follows.

    Args:
        layers: Number of layers.
        heads: Number of heads of each layer.
        width: Width of each layer's vectors; a multiple of `heads`.

    Shape:
        vectors of equal width to `[rows, count, width]`.

    Raises:
        ModelError: There are no layers, or the width is not a multiple of `heads`.
    """

    def __init__(self, layers: int, heads: int, width: int):
        super().__init__()
        self.num_layers = layers
        self.heads = heads
        self.width = width
        if layers < 1 or width % heads:
            raise ModelError(
                f"{self.label} cannot have {layers} layers of {heads} heads, {width} wide",
                hint="Use at least 1 layer, and a width that the heads divide.",
            )

    def build(self, input_shape: Shape) -> Shape:
        vectors = vectors_of(input_shape, self.label)
        widths = [vectors.dim, *[self.width] * (self.num_layers - 1)]
        self.layers = nn.ModuleList(nn.Linear(w, 4 * self.width, bias=False) for w in widths)
        return Vectors(vectors.count, self.width)

    def forward(self, value: Value) -> Tensor:
        vectors = stacked(value)
        for layer in self.layers:
            *of_heads, beside = layer(vectors).chunk(4, dim=2)
            query, key, values = (
                one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in of_heads
            )
            attended = functional.scaled_dot_product_attention(query, key, values, scale=1.0)
            vectors = functional.relu(attended.transpose(1, 2).flatten(2) + beside)
        return vectors


class CompressedInteraction(Block):
    """The compressed interaction network of xDeepFM (arXiv:1803.05170, eq. 6 to 8).

    With x0 a row's vectors, map h of layer k is the sum over i and j of W[k, h, i, j] times the
    product, element by element, of vector i of layer k - 1 and vector j of x0. A layer's output is
    the sum of each map over its dimensions.

    Args:
        maps: The number of maps of each layer.

    Shape:
        vectors of equal width to `[rows, sum(maps)]`.

    >>> cin = CompressedInteraction([2, 3])
    >>> str(cin.attach(Vectors(4, 8)))
    '[rows, 5]'
    >>> sum(p.numel() for p in cin.parameters())  # 2*4*4 + 3*2*4
    56
    """

    def __init__(self, maps: Sequence[int]):
        super().__init__()
        self.maps = tuple(maps)
        if not self.maps:
            raise ModelError(f"{self.label} needs at least 1 layer")

    def build(self, input_shape: Shape) -> Shape:
        vectors = vectors_of(input_shape, self.label)
        before = (vectors.count, *self.maps)
        pairs = zip(before, self.maps, strict=False)
        self.layers = nn.ModuleList(
            nn.Linear(count * vectors.count, maps, bias=False) for count, maps in pairs
        )
        return Flat(sum(self.maps))

    def forward(self, value: Value) -> Tensor:
        # The products, by far the largest tensors, have the layout of the layer's input: no copies.
        first = vectors = stacked(value).mT.contiguous()
        sums = []
        for layer in self.layers:
            vectors = layer((vectors.unsqueeze(3) * first.unsqueeze(2)).flatten(2))
            sums.append(vectors.sum(1))
        return torch.cat(sums, dim=1)


class DLRMBlock(Block):
    """Bottom MLP, dot products of all pairs of vectors, top MLP (arXiv:1906.00091).

    The continuous columns pass through the bottom MLP and become one more vector beside the
    embeddings. The top MLP reads that vector and the dot products of all pairs. Every layer of both
    MLPs ends in a ReLU.

    If `bottom`'s last width is not the width of the embeddings, a linear layer without ReLU
    projects to the embeddings' width. The job spec's defaults (64 for embeddings of 16) need that
    layer; the Merlin notebook's widths (64 for embeddings of 64) do not. Without continuous columns
    there is no bottom MLP, and only embeddings interact.

    Args:
        bottom: The bottom MLP's widths.
        top: The top MLP's widths.

    Shape:
        columns, with embeddings of equal width, to `[rows, top[-1]]`.
    """

    only_multiplies = True

    def __init__(self, bottom: Sequence[int], top: Sequence[int]):
        super().__init__()
        self.bottom = MLPBlock(bottom)
        self.register_module("projection", None)
        self.interaction = DotProductInteraction()
        self.top = MLPBlock(top)
        self._deep = False

    def build(self, input_shape: Shape) -> Shape:
        if (
            not isinstance(input_shape, Columns)
            or len(input_shape.groups) > 1
            or input_shape.events
        ):
            raise ModelError(
                f"{self.label} needs embeddings of equal width, but {input_shape.made_by} returns "
                f"{input_shape}",
                hint="Set one embedding_dim for all columns.",
            )
        self._deep = bool(input_shape.continuous)
        pairs_from = sum(len(group.columns) for group in input_shape.groups) + self._deep
        if pairs_from < 2:
            raise ModelError(
                f"{self.label} needs at least two vectors to interact, but {input_shape.made_by} "
                f"returns {input_shape}",
                hint="Use two categorical columns, or one and continuous ones; or an MLP.",
            )
        dim = input_shape.groups[0].dim
        if self._deep:
            last = self.bottom.attach(Flat(len(input_shape.continuous), input_shape.made_by)).width
            if last != dim:
                self.projection = Linear(last, dim)
        pairs = self.interaction.attach(Vectors(pairs_from, dim, input_shape.made_by)).width
        return self.top.attach(Flat(dim * self._deep + pairs, self.label))

    def forward(self, value: Features) -> Tensor:
        (vectors,) = value.embedded
        if not self._deep:
            return cast(Tensor, self.top(self.interaction(vectors)))
        deep = self.bottom(value.continuous)
        deep = deep if self.projection is None else self.projection(deep)
        return cast(Tensor, self.top(self.interaction.pairs.beside(deep, vectors)))
