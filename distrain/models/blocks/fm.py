"""Factorisation machines."""

from torch import Tensor

from distrain.models.block import Block
from distrain.models.shapes import Flat, Shape, Value, stacked, vectors_of


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

    >>> import torch
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
        """See `Block`.

        Raises:
            ModelError: The widths of the vectors differ.
        """
        vectors = vectors_of(given, self.label)
        return Flat(vectors.dim if self.per_dim else 1)

    def forward(self, value: Value) -> Tensor:
        """The pairs' products, added up."""
        vectors = stacked(value)
        products = (vectors.sum(1).square() - vectors.square().sum(1)) / 2
        return products if self.per_dim else products.sum(1, keepdim=True)
