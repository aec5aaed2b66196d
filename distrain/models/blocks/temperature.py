"""Less confident, or more confident, logits."""

from torch import Tensor

from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.shapes import Flat, Shape, Value, flat, some_width


class LogitsTemperatureScaler(Block):
    """Logits divided by a temperature.

    Above 1 it draws probabilities towards each other, below 1 apart (arXiv:1503.02531, eq. 1; as a
    calibration arXiv:1706.04599). The order of the rows, and so the AUC, stays.

    Args:
        temperature: Above 0.

    Shape:
        a tensor to one of the same shape; anything else laid flat.

    Raises:
        ModelError: The temperature is 0 or less.

    >>> import torch
    >>> LogitsTemperatureScaler(2.0)(torch.tensor([3.0, -1.0]))
    tensor([ 1.5000, -0.5000])
    """

    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature
        if not temperature > 0:
            raise ModelError(f"a temperature is above 0, not {temperature}")

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        return Flat(some_width(given, self.label))

    def forward(self, value: Value) -> Tensor:
        """The scaled logits."""
        return (value if isinstance(value, Tensor) else flat(value)) / self.temperature
