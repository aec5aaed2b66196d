"""Functions that blocks are made of: activations by name, a linear layer over parts, one-hot."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError

_LAYERS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}
# These can overwrite what they are given: their gradient follows from their output.
_IN_PLACE = {"relu", "selu", "leaky_relu"}

ACTIVATIONS = tuple(_LAYERS)


def activation_layer(name: str, *, inplace: bool = False) -> nn.Module:
    """A new layer of one of `ACTIVATIONS`, with torch's defaults (leaky_relu: a slope of 0.01).

    `inplace` overwrites the input, where the activation can: only where no gradient needs it.

    >>> activation_layer("relu", inplace=True)
    ReLU(inplace=True)
    """
    if name not in _LAYERS:
        raise ModelError(
            f"there is no activation {name!r}", hint=f"Take one of {', '.join(ACTIVATIONS)}."
        )
    return _LAYERS[name](inplace=True) if inplace and name in _IN_PLACE else _LAYERS[name]()


def linear_over(layer: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """`layer(torch.cat(parts, dim=1))` for one or more parts `[rows, width]`, without the copy.

    The weight is cut instead. The embeddings of a batch are its largest tensor by far, and a step
    that never copies them, nor their gradient, is about a tenth faster for it (docs/log.md).

    >>> layer, (a, b) = nn.Linear(5, 2), (torch.ones(4, 3), torch.ones(4, 2))
    >>> torch.allclose(linear_over(layer, [a, b]), layer(torch.cat([a, b], dim=1)))
    True
    """
    weights = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    output = functional.linear(parts[0], weights[0], layer.bias)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        output = torch.addmm(output, part, weight.t())
    return output


def one_hot(ids: Tensor, num_bins: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A 1 in the place of each id, 0 elsewhere, `[rows, num_bins]`; nothing waits for the device.

    A linear layer over it picks a column of its weight, which an embedding of the same ids does
    without the zeros: give `Embeddings` the cross or the column, with `dim` the layer's outputs.

    Args:
        ids: `[rows]`, integers; one outside `0 .. num_bins-1` gives zeros.

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return (ids[:, None] == torch.arange(num_bins, device=ids.device)).to(dtype)
