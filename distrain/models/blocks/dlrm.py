"""The body of DLRM."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.functional import Linear
from distrain.models.blocks.interaction import DotProductInteraction
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Columns, Features, Flat, Shape, Vectors


class DLRMBlock(Block):
    """Bottom MLP, dot products of all pairs of vectors, top MLP (arXiv:1906.00091).

    The continuous columns pass through the bottom MLP and become one more vector beside the
    embeddings. The top MLP sees that vector and the dot products of all pairs. Every layer of both
    MLPs ends in a ReLU.

    Where `bottom`'s last width is not the embeddings', a linear layer without ReLU brings it there;
    the job spec's defaults (64 wide above embeddings of 16) need it, the Merlin notebook's 64 above
    64 does not. Without continuous columns there is no bottom MLP: the embeddings interact by
    themselves.

    Args:
        bottom: The bottom MLP's widths.
        top: The top MLP's widths.

    Shape:
        columns, all embeddings equally wide, to `[rows, top[-1]]`.
    """

    only_multiplies = True

    def __init__(self, bottom: Sequence[int], top: Sequence[int]):
        super().__init__()
        self.bottom = MLPBlock(bottom)
        self.register_module("projection", None)
        self.interaction = DotProductInteraction()
        self.top = MLPBlock(top)
        self._deep = False

    def build(self, given: Shape) -> Shape:
        if not isinstance(given, Columns) or len(given.groups) > 1 or given.events:
            raise ModelError(
                f"{self.label} takes embeddings of one width, and {given.made_by} gives {given}",
                hint="Set one embedding_dim for all columns.",
            )
        self._deep = bool(given.continuous)
        pairs_from = sum(len(group.columns) for group in given.groups) + self._deep
        if pairs_from < 2:
            raise ModelError(
                f"{self.label} needs at least two vectors to interact, and {given.made_by} gives "
                f"{given}",
                hint="Use two categorical columns, or one and continuous ones; or an MLP.",
            )
        dim = given.groups[0].dim
        if self._deep:
            last = self.bottom.attach(Flat(len(given.continuous), given.made_by)).width
            if last != dim:
                self.projection = Linear(last, dim)
        pairs = self.interaction.attach(Vectors(pairs_from, dim, given.made_by)).width
        return self.top.attach(Flat(dim * self._deep + pairs, self.label))

    def forward(self, value: Features) -> Tensor:
        (vectors,) = value.embedded
        if not self._deep:
            return cast(Tensor, self.top(self.interaction(vectors)))
        deep = self.bottom(value.continuous)
        deep = deep if self.projection is None else self.projection(deep)
        return cast(Tensor, self.top(self.interaction.pairs.beside(deep, vectors)))
