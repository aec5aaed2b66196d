"""Activations by name."""

from collections.abc import Callable

from torch import nn

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
    """A new layer of an activation.

    Args:
        name: One of `ACTIVATIONS`, with torch's defaults (leaky_relu: a slope of 0.01).
        inplace: Overwrite the input, where the activation can; for who owns it and knows that no
            gradient needs it.

    Raises:
        ModelError: There is no such activation.

    >>> activation_layer("relu", inplace=True)
    ReLU(inplace=True)
    """
    if name not in _LAYERS:
        raise ModelError(
            f"there is no activation {name!r}", hint=f"Take one of {', '.join(ACTIVATIONS)}."
        )
    return _LAYERS[name](inplace=True) if inplace and name in _IN_PLACE else _LAYERS[name]()
