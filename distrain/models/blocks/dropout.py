"""Dropout by itself."""

from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.shapes import Features, Shape, Value


class Dropout(Block):
    """Sets a share of the values to 0 in training, and scales the others up.

    Over the embeddings of `Filter(kind="categorical")` it is fastai's `embed_p`.

    Args:
        share: At least 0 and below 1.

    Shape:
        anything to the same.

    Raises:
        ModelError: There is no such share.

    >>> import torch
    >>> Dropout(0.5).eval()(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, share: float):
        super().__init__()
        if not 0 <= share < 1:
            raise ModelError(f"a dropout is at least 0 and below 1, not {share}")
        self.drop = nn.Dropout(share)

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        return given

    def forward(self, value: Value) -> Value:
        """What is left."""
        if isinstance(value, Features):
            embedded = tuple(self.drop(group) for group in value.embedded)
            return Features(embedded, self.drop(value.continuous))
        if isinstance(value, Tensor):
            dropped: Tensor = self.drop(value)
            return dropped
        return {name: self.forward(one) for name, one in value.items()}
