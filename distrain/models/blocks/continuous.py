"""Continuous columns."""

from collections.abc import Iterable

from torch import Tensor

from distrain.models.block import Block
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.normalisation import normalisation_layer
from distrain.models.shapes import Features, Flat, Shape, Value


class ContinuousFeatures(Block):
    """The continuous columns, or some of them.

    Args:
        names: Which; all if none are given.
        tags: Only columns with one of these.
        normalisation: "batch_norm", "layer_norm" or "none". fastai's TabularModel has a batch norm
            there.

    Shape:
        columns to `[rows, continuous columns]`.

    Raises:
        ModelError: There are none, none of a name, or no such normalisation.

    >>> from distrain.models.shapes import Column, Columns
    >>> str(ContinuousFeatures().attach(Columns((), (Column("price"), Column("age")))))
    '[rows, 2]'
    """

    def __init__(self, *names: str, tags: str | Iterable[str] = (), normalisation: str = "none"):
        super().__init__()
        self.pick = Filter(*names, tags=tags, kind="continuous")
        self.normalisation = normalisation

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        width = self.pick.attach(given).width
        self.norm = normalisation_layer(self.normalisation, width)
        return Flat(width)

    def forward(self, value: Value) -> Tensor:
        """The columns."""
        picked = self.pick(value)
        assert isinstance(picked, Features)
        result: Tensor = self.norm(picked.continuous)
        return result
