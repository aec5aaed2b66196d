"""Layers with few parameters or none: normalisations, dropout, a temperature."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.shapes import (
    Features,
    Flat,
    GroupedRows,
    Shape,
    Value,
    flat,
    some_width,
    stacked,
    vectors_of,
)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that supports batches of any number of rows.

    In training every column is normalised to mean 0 and variance 1 over the batch
    (arXiv:1502.03167). torch's layer rejects a training batch of one row, whose variance is 0 over
    0. Here a batch of one row or none is normalised as in evaluation, by the running statistics,
    without updating them. Ranks get such batches at the end of an epoch. Every rank uses the
    statistics of its own rows only.

    Shape:
        `[rows, width]` to the same.

    >>> import torch
    >>> BatchNorm(2)(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """

    rows_are_independent = False

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.shape[0] < 2:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class Dice(nn.Module):
    """`p x + (1 - p) a x` with `p = sigmoid(norm(x))` (arXiv:1706.06978, section 5.3).

    `a` is a parameter of each column, initially 0. `norm` is `BatchNorm` without parameters.

    Shape:
        `[rows, width]` to the same.
    """

    def __init__(self, width: int):
        super().__init__()
        self.norm = BatchNorm(width, eps=1e-8, affine=False)
        self.slope = nn.Parameter(torch.zeros(width))

    def forward(self, value: Tensor) -> Tensor:
        gate = torch.sigmoid(self.norm(value))
        return value * (gate + (1 - gate) * self.slope)


_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "batch_norm": BatchNorm,
    "layer_norm": nn.LayerNorm,
    "none": lambda width: nn.Identity(),
}

NORMALISATIONS = tuple(_LAYERS)


def normalisation_layer(name: str, width: int) -> nn.Module:
    if name not in _LAYERS:
        raise ModelError(
            f"unknown normalisation {name!r}",
            hint=f"Use one of {', '.join(NORMALISATIONS)}.",
        )
    return _LAYERS[name](width)


class L2Norm(Block):
    """Divides every vector by its length, so that dot products are cosines.

    A vector shorter than 1e-12 is divided by 1e-12, so zeros stay zeros.

    Shape:
        `[rows, width]`, or vectors of equal width `[rows, count, dim]`, to the same shape.

    >>> import torch
    >>> norm = L2Norm()
    >>> str(norm.attach(Flat(2)))
    '[rows, 2]'
    >>> norm(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    shortest: ClassVar[float] = 1e-12

    def build(self, input_shape: Shape) -> Shape:
        return input_shape if isinstance(input_shape, Flat) else vectors_of(input_shape, self.label)

    def forward(self, value: Value) -> Tensor:
        return functional.normalize(stacked(value), dim=-1, eps=self.shortest)


class Dropout(Block):
    """Sets a share of the values to 0 in training, and scales up the others.

    Over the embeddings of `Filter(kind="categorical")` it is fastai's `embed_p`.

    Args:
        share: At least 0 and below 1, otherwise `ModelError`.

    Shape:
        any shape to the same.

    >>> import torch
    >>> Dropout(0.5).eval()(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, share: float):
        super().__init__()
        if not 0 <= share < 1:
            raise ModelError(f"a dropout must be at least 0 and below 1, not {share}")
        self.drop = nn.Dropout(share)

    def build(self, input_shape: Shape) -> Shape:
        return input_shape

    def forward(self, value: Value) -> Value:
        if isinstance(value, Features):
            embedded = tuple(self.drop(group) for group in value.embedded)
            return Features(embedded, self.drop(value.continuous), value.events)
        if isinstance(value, Tensor | GroupedRows):
            dropped: Tensor = self.drop(value if isinstance(value, Tensor) else value.dense())
            return dropped
        return {name: self.forward(one) for name, one in value.items()}


class LogitsTemperatureScaler(Block):
    """Divides logits by a temperature.

    A temperature above 1 moves probabilities towards 0.5, a temperature below 1 away from 0.5
    (arXiv:1503.02531, eq. 1; as a calibration arXiv:1706.04599). The order of the rows, and so the
    AUC, does not change.

    Args:
        temperature: Above 0, otherwise `ModelError`.

    Shape:
        a tensor to one of the same shape; other values are flattened.

    >>> import torch
    >>> LogitsTemperatureScaler(2.0)(torch.tensor([3.0, -1.0]))
    tensor([ 1.5000, -0.5000])
    """

    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature
        if not temperature > 0:
            raise ModelError(f"a temperature must be above 0, not {temperature}")

    def build(self, input_shape: Shape) -> Shape:
        return Flat(some_width(input_shape, self.label))

    def forward(self, value: Value) -> Tensor:
        return (value if isinstance(value, Tensor) else flat(value)) / self.temperature
