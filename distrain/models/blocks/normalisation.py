"""Normalisations: of a batch's columns, of a row's values, of a vector's length."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.shapes import Flat, Shape, Value, stacked, vectors_of


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes batches of any number of rows.

    In training every column is brought to mean 0 and variance 1 over the batch (arXiv:1502.03167).
    torch's own refuses a batch of one row there, whose variance is 0 over 0. Here a batch of one
    row, or of none, is normalised as in evaluation, by the running statistics, and leaves those as
    they were. Ranks meet such batches at the end of an epoch.

    Every rank has the statistics of its own rows.

    Shape:
        `[rows, width]` to the same.

    >>> import torch
    >>> BatchNorm(2)(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The normalised rows."""
        if self.training and input.shape[0] < 2:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "batch_norm": BatchNorm,
    "layer_norm": nn.LayerNorm,
    "none": lambda width: nn.Identity(),
}

NORMALISATIONS = tuple(_LAYERS)


def normalisation_layer(name: str, width: int) -> nn.Module:
    """A new layer of a normalisation.

    Args:
        name: One of `NORMALISATIONS`.
        width: Of the rows.

    Raises:
        ModelError: There is no such normalisation.
    """
    check_normalisation(name)
    return _LAYERS[name](width)


def check_normalisation(name: str) -> None:
    """Raise if there is no normalisation of that name.

    Raises:
        ModelError: There is none.
    """
    if name not in _LAYERS:
        raise ModelError(
            f"there is no normalisation {name!r}",
            hint=f"Take one of {', '.join(NORMALISATIONS)}.",
        )


class L2Norm(Block):
    """Every vector divided by its length: dot products become cosines.

    A vector shorter than 1e-12 is divided by that, so zeros stay zeros.

    Shape:
        `[rows, width]`, a vector a row, or vectors of one width `[rows, count, dim]`, to the same.

    >>> import torch
    >>> norm = L2Norm()
    >>> str(norm.attach(Flat(2)))
    '[rows, 2]'
    >>> norm(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    shortest: ClassVar[float] = 1e-12

    def build(self, given: Shape) -> Shape:
        """See `Block`.

        Raises:
            ModelError: The widths of the vectors differ.
        """
        return given if isinstance(given, Flat) else vectors_of(given, self.label)

    def forward(self, value: Value) -> Tensor:
        """The vectors of length 1."""
        return functional.normalize(stacked(value), dim=-1, eps=self.shortest)
